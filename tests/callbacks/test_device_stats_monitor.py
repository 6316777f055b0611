"""Memory of the devices in the logs."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import jax
import pytest
import torch
from loggers.log_readers import read_csv
from trainer.runs import Line, batches, trainer
from trainer.three_ways import loader, regression

import systolic as L
from systolic.callbacks import DeviceStatsMonitor


@dataclass
class Counting:
    """A device with the numbers that libtpu's allocator gives."""

    platform: str = "tpu"
    id: int = 3

    def memory_stats(self) -> dict[str, Any]:
        return {"bytes_in_use": 5 * 2**20, "peak_bytes_in_use": 7 * 2**20, "bytes_limit": 16 * 2**30, "pool_bytes": 1}


# defect 4: the names that the allocator really uses, and bytes that are bytes
def test_values_are_bytes_under_the_allocators_names() -> None:
    assert DeviceStatsMonitor().stats([Counting()]) == {  # type: ignore[list-item]
        "tpu:3/bytes_in_use": 5 * 2**20,
        "tpu:3/peak_bytes_in_use": 7 * 2**20,
        "tpu:3/bytes_limit": 16 * 2**30,
    }


def test_simulated_cores_log_the_process() -> None:
    before = DeviceStatsMonitor().stats(list(jax.devices("cpu")))
    machine = {"cpu_percent", "cpu_vm_percent", "cpu_swap_percent"}  # Lightning's
    assert set(before) - machine == {"cpu/resident_bytes", "cpu/peak_resident_bytes"}
    held = bytearray(200 * 2**20)
    held[:: 2**12] = b"x" * len(held[:: 2**12])  # a page counts when it was written to
    after = DeviceStatsMonitor().stats(list(jax.devices("cpu")))
    assert after["cpu/resident_bytes"] - before["cpu/resident_bytes"] == pytest.approx(200 * 2**20, rel=0.05)
    assert after["cpu/peak_resident_bytes"] >= after["cpu/resident_bytes"] * 0.99


def test_process_memory_on_request() -> None:
    assert "cpu/resident_bytes" in DeviceStatsMonitor(cpu_stats=True).stats([Counting()])  # type: ignore[list-item]
    assert DeviceStatsMonitor(cpu_stats=False).stats(list(jax.devices("cpu"))) == {}


def test_logged_every_n_steps(tmp_path) -> None:
    logger = L.loggers.CSVLogger(tmp_path)
    trainer(logger=logger, callbacks=[DeviceStatsMonitor()], log_every_n_steps=2).fit(Line(), batches(6))
    found = read_csv(logger.log_dir)
    for hook in ("on_train_batch_start", "on_train_batch_end"):
        name = f"DeviceStatsMonitor.{hook}/cpu/resident_bytes"
        values = [value for _, value in found[name]]
        assert len(values) == 3
        assert min(values) > 50 * 2**20


class TwoOptimizers(Line):
    """Steps twice in every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(self.loss_of(self, batch))
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD([parameter], lr=0.1) for parameter in self.parameters()]


def test_steps_are_batches_with_several_optimizers(tmp_path) -> None:
    logger = L.loggers.CSVLogger(tmp_path)
    trainer(logger=logger, callbacks=[DeviceStatsMonitor()], log_every_n_steps=2).fit(TwoOptimizers(), batches(6))
    found = read_csv(logger.log_dir)
    for hook in ("on_train_batch_start", "on_train_batch_end"):
        assert [step for step, _ in found[f"DeviceStatsMonitor.{hook}/cpu/resident_bytes"]] == [1, 3, 5]


def test_needs_a_logger() -> None:
    with pytest.raises(L.MisconfigurationException, match="`DeviceStatsMonitor` callback with a `Trainer` that has no logger"):
        trainer(callbacks=[DeviceStatsMonitor()]).fit(Line(), batches(2))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning's
def test_names_of_the_processors_are_lightnings(tmp_path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    pytest.importorskip("psutil")
    found = []
    for package in (lightning, L):
        logger = package.loggers.CSVLogger(tmp_path / package.__name__)
        run = package.Trainer(
            accelerator="cpu", devices=1, max_epochs=1, logger=logger, callbacks=[package.callbacks.DeviceStatsMonitor()],
            log_every_n_steps=1, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        )  # fmt: skip
        run.fit(regression(package.LightningModule)(), loader(8))
        found.append({name for name in read_csv(logger.log_dir) if "cpu_" in name})
    assert found[0] == found[1]
    assert len(found[0]) == 6


class Rows:
    """The step of each row, with the hook that it is of or its metrics."""

    def __init__(self, package: Any) -> None:
        rows: list[tuple[int | None, list[str]]] = []

        class Keeping(package.loggers.Logger):
            name = version = "rows"

            def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None: ...

            def log_metrics(self, metrics: Any, step: int | None = None) -> None:
                rows.append((step, sorted({name.split("/")[0] for name in metrics})))

        self.rows, self.logger = rows, Keeping()


def _validated(base: type) -> Any:
    class Validated(regression(base)):  # type: ignore[misc]
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("checked", self.training_step(batch, batch_idx))

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.trainer.should_stop = self.trainer.should_stop or self.current_epoch == 1

    return Validated()


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning", "ignore:.*does not have many workers", "ignore:.*is less than")
@pytest.mark.parametrize(("accumulate", "every"), [(1, 1), (1, 2), (3, 2)])
def test_rows_are_lightnings_in_validation_too(accumulate: int, every: int) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    found = []
    for package in (lightning, L):
        kept = Rows(package)
        run = package.Trainer(
            accelerator="cpu", devices=1, max_epochs=3, logger=kept.logger, callbacks=[package.callbacks.DeviceStatsMonitor()],
            log_every_n_steps=every, val_check_interval=3, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, accumulate_grad_batches=accumulate,
        )  # fmt: skip
        module = _validated(package.LightningModule)
        run.fit(module, loader(24), loader(8))
        run.validate(module, loader(8), verbose=False)
        found.append([row for row in kept.rows if any("DeviceStats" in name or name == "checked" for name in row[1])])
    assert found[1] == found[0]
    assert any(step == 0 and "validation" in names[0] for step, names in found[0]), "the sanity check has rows"


def test_numbers_of_the_processors_need_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "psutil" else real(name, *rest))
    with pytest.raises(ModuleNotFoundError, match="pip install psutil"):
        trainer(logger=L.loggers.CSVLogger("logs"), callbacks=[DeviceStatsMonitor(cpu_stats=True)]).fit(Line(), batches(2))
