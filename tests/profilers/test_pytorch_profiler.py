"""PyTorchProfiler: the host, by torch.profiler."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic.profilers import PyTorchProfiler, make_profiler

# torch.profiler's own
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch")


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.layer(batch[0]).square().mean()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        torch.ones(3).cumsum(0)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def small(base: Any) -> Any:
    """The same module, of another package's base class."""

    class Small(base):
        training_step = Net.training_step
        configure_optimizers = Net.configure_optimizers

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

    return Small()


def fit(profiler: Any, tmp_path: Path, batches: int = 8, **options: Any) -> L.Trainer:
    trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=1, logger=False, profiler=profiler, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path, **options)  # fmt: skip
    trainer.fit(Net(), DataLoader(TensorDataset(torch.ones(4 * batches, 4)), batch_size=4))
    return trainer


def test_the_table_and_the_trace_are_of_the_host(tmp_path: Path) -> None:
    fit(PyTorchProfiler(filename="ops", row_limit=-1), tmp_path, batches=6)
    (table,) = tmp_path.glob("*.txt")
    text = table.read_text()
    assert 'Trainer(profiler="xla")' in text
    assert "aten::cumsum" in text
    assert "aten::addmm" not in text
    (trace,) = tmp_path.glob("*.pt.trace.json")
    names = [event.get("name", "") for event in json.loads(trace.read_text())["traceEvents"]]
    assert sum(name.startswith("[pl][profile]") and name.endswith(".training_step") for name in names) == 3


@pytest.mark.tables
def test_without_compilation_the_steps_ops_are_there(tmp_path: Path) -> None:
    fit(PyTorchProfiler(filename="ops", row_limit=-1, schedule=None, record_shapes=True, group_by_input_shapes=True), tmp_path,
        batches=2, compile=False)  # fmt: skip
    (table,) = tmp_path.glob("*.txt")
    assert "aten::addmm" in table.read_text()


@pytest.mark.tables
def test_numbers_are_not_changed_by_it(tmp_path: Path) -> None:
    weights = []
    for profiler in (None, "pytorch"):
        torch.manual_seed(0)
        weights.append(fit(profiler, tmp_path).lightning_module.layer.weight)
    assert torch.equal(*weights)


def test_too_few_steps_are_told(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="recorded nothing.*schedule=None"):
        fit(PyTorchProfiler(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)), tmp_path, batches=1)


@pytest.mark.parametrize("batches", [1, 4, 5])
def test_short_runs_are_recorded_whole(batches: int, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    def steps(package: Any) -> tuple[int, bool]:
        profiler = package.profilers.PyTorchProfiler(dirpath=tmp_path / package.__name__, filename="ops")
        trainer = package.Trainer(
            accelerator="cpu", devices=1, max_epochs=1, logger=False, profiler=profiler, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        recwarn.clear()
        trainer.fit(small(package.LightningModule), DataLoader(TensorDataset(torch.ones(4 * batches, 4)), 4))
        told = any("not enough steps" in str(warning.message) for warning in recwarn)
        return sum(event.name.endswith(".training_step") for event in profiler.function_events or ()), told

    lightning = pytest.importorskip("lightning.pytorch")
    lightning.profilers.pytorch.warning_cache.clear()  # it tells once a process
    ours, theirs = steps(L), steps(lightning)
    assert ours[1] == theirs[1] == (batches < 5)
    assert ours[0] == (batches if batches < 5 else 3)


@pytest.mark.parametrize(("training", "validation"), [(7, 6), (7, 2), (3, 6), (5, 5), (7, 0)])
def test_validation_counts_by_itself_as_in_lightning(training: int, validation: int, tmp_path: Path) -> None:
    def seen(package: Any) -> tuple[set[str], list[str]]:
        """Kinds of steps among the events that are kept, and of the traces."""

        class Model(small(package.LightningModule).__class__):  # type: ignore[misc]
            def validation_step(self, batch: Any, batch_idx: int) -> None:
                self.layer(batch[0])

        folder = tmp_path / package.__name__
        profiler = package.profilers.PyTorchProfiler(dirpath=folder, filename="ops")
        trainer = package.Trainer(
            accelerator="cpu", devices=1, max_epochs=1, logger=False, profiler=profiler, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path, limit_val_batches=validation,
            num_sanity_val_steps=2,
        )  # fmt: skip
        loaders = [DataLoader(TensorDataset(torch.ones(4 * batches, 4)), 4) for batches in (training, 6)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.fit(Model(), *loaders)
        kinds = ("training_step", "validation_step")
        events = {kind for kind in kinds for event in profiler.function_events or () if event.name.endswith(f".{kind}")}
        traces = [kind for file in sorted(folder.glob("*.json")) for kind in kinds if kind in file.name]
        return events, sorted(traces)

    lightning = pytest.importorskip("lightning.pytorch")
    assert seen(L) == seen(lightning)


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"sort_by_key": "cpu_tme"}, L.MisconfigurationException, "Found sort_by_key: cpu_tme.*Did you mean 'cpu_time'"),
    ({"schedule": 3}, L.MisconfigurationException, "Schedule should be a callable. Found: 3"),
    ({"schedule": lambda step: 1}, L.MisconfigurationException, "Schedule should return a"),
    ({"emit_nvtx": True}, L.MisconfigurationException, "XLA runs them here"),
    ({"table_kwargs": {"sort_by": "x"}}, KeyError, "Found invalid table_kwargs key: sort_by"),
    ({"table_kwargs": {"width": 1}}, KeyError, "Should be within"),
    ({"profile_memry": True}, TypeError, "Did you mean 'profile_memory'"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSED)
def test_impossible_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PyTorchProfiler(**arguments)


def test_it_has_a_name_and_can_be_copied() -> None:
    assert isinstance(make_profiler("pytorch"), PyTorchProfiler)
    assert copy.deepcopy(PyTorchProfiler(dirpath="x", schedule=None, on_trace_ready=None)).dirpath == "x"
