"""One process drives all cores: what went wrong with a process for each core cannot."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from trainer.runs import Line, trainer

import systolic as L


def children() -> set[str]:
    """The processes that this one has started and that still run."""
    found: set[str] = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended meanwhile
            found |= set((task / "children").read_text().split())
    return found


class Watch(L.Callback):
    """Looks at every step for processes that were not there before."""

    def __init__(self) -> None:
        self.before = children()
        self.started: set[str] = set()

    def on_train_batch_end(self, *_: Any) -> None:
        self.started |= children() - self.before


class Regression(Line):
    """Linear regression on batches that are pairs."""

    def __init__(self, loss_of: Any = None) -> None:
        super().__init__(loss_of or (lambda module, batch: F.mse_loss(module.layer(batch[0]), batch[1])))


def data(count: int = 64) -> TensorDataset:
    return TensorDataset(torch.randn(count, 4), torch.randn(count, 1))


# promise 10: L#18131, nothing to start, fork or join
def test_training_on_eight_cores_starts_no_process() -> None:
    watch = Watch()
    trainer(8, callbacks=[watch]).fit(Regression(), DataLoader(data(), batch_size=2))
    assert watch.started == set()


def test_no_worker_outlives_a_run() -> None:
    """Workers that persist would hold up the garbage collector for five seconds each."""
    before = children()
    loader = DataLoader(data(), batch_size=16, num_workers=2, persistent_workers=True)
    trainer(1, max_epochs=2, compile=False).fit(Regression(), loader)
    assert children() - before == set()


class Unique(Dataset[Any]):
    """A dataset of which there is one."""

    def __init__(self) -> None:
        self.rows = data()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise AssertionError("the dataset was copied or pickled")


class UniqueModule(Regression):
    """A module of which there is one."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", self.loss_of(self, batch))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise AssertionError("the module was copied or pickled")


# promise 22: X#1513, one copy for all cores
# defect 19: a copy of trainer, module and arguments for every thread
def test_neither_data_nor_module_is_copied() -> None:
    dataset = Unique()
    run = trainer(8)
    run.fit(UniqueModule(), DataLoader(dataset, batch_size=2, shuffle=True), DataLoader(dataset, batch_size=2))
    assert run.global_step == 4


# promise 11: L#18176, a dataset of more than 2**15 samples
@pytest.mark.tables
def test_large_datasets() -> None:
    count = 2**15 + 1000
    run = trainer(8)
    run.fit(Regression(), DataLoader(data(count), batch_size=1024, shuffle=True))
    assert run.global_step == -(-count // 8192)


class Layered(L.LightningModule):
    """Keeps a class of modules and a read-only mapping among its hyper-parameters."""

    def __init__(self, norm: type[nn.Module] = nn.BatchNorm1d, table: Any = None) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["table"])
        self.table = table
        self.net = nn.Sequential(nn.Linear(4, 4), norm(4), nn.Linear(4, 1))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch["x"]).square().mean() * batch["facts"]["scale"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def collate(rows: list[Any]) -> dict[str, Any]:
    return {"x": torch.stack([row[0] for row in rows]), "facts": MappingProxyType({"scale": 2.0, "name": "a"})}


# promise 9: X#2773, X#7123
def test_classes_and_read_only_mappings_are_no_trouble(tmp_path: Path) -> None:
    model, run = Layered(nn.LayerNorm, MappingProxyType({"a": 1})), trainer(8)
    run.fit(model, DataLoader(data(), batch_size=2, collate_fn=collate))
    with pytest.warns(UserWarning, match="LayerNorm"):  # which torch.load(weights_only=True) will refuse
        run.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=False)
    torch.testing.assert_close(saved["state_dict"], dict(model.state_dict()))


class SaveInEveryHook(L.Callback):
    """Saves where TPU users' runs hung: in hooks of steps, epochs and at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        trainer.save_checkpoint(self.directory / "step.ckpt")

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        trainer.save_checkpoint(self.directory / "epoch.ckpt")

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        trainer.save_checkpoint(self.directory / "end.ckpt")


# promise 12: L#14343, the end of fit, and resuming
# promise 14: L#2700, a save is a collective of no ranks
def test_saving_anywhere_and_resuming_on_eight_cores(tmp_path: Path) -> None:
    torch.manual_seed(1)
    whole, resumed, loader = Regression(), Regression(), DataLoader(data(), batch_size=2)
    first = trainer(8, max_epochs=2, callbacks=[SaveInEveryHook(tmp_path)])
    first.fit(resumed, loader)
    whole.load_state_dict(resumed.state_dict())
    trainer(8, max_epochs=4).fit(resumed, loader, ckpt_path=tmp_path / "end.ckpt")
    trainer(8, max_epochs=2).fit(whole, loader)
    torch.testing.assert_close(dict(resumed.state_dict()), dict(whole.state_dict()))
    for name in ("step", "epoch", "end"):
        assert torch.load(tmp_path / f"{name}.ckpt", weights_only=True)["global_step"] == 8


class Boom(Exception):
    pass


# promise 25: X#7974, an error is a Python traceback, and nobody waits for anybody
def test_an_error_on_eight_cores_is_a_traceback_and_the_next_run_works() -> None:
    def fails(module: Any, batch: Any) -> torch.Tensor:
        raise Boom("in the step")

    loader = DataLoader(data(), batch_size=2)
    with pytest.raises(Boom, match="in the step") as raised:
        trainer(8).fit(Regression(fails), loader)
    assert raised.traceback[-1].name == "fails"
    trainer(8).fit(Regression(), loader)


# promise 15: L#7086, touching the devices first; a cell that is run again, with another number of cores
def test_devices_may_be_touched_first_and_runs_repeated() -> None:
    jax.block_until_ready(jax.device_put(torch.ones(3).numpy(), jax.devices("cpu")[3]))
    for devices in (8, 1, 4, 8):
        run = trainer(devices)
        run.fit(Regression(), DataLoader(data(), batch_size=2))
        assert run.num_devices == devices


class Logging(Regression):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss)
        return loss


# promise 8: L#20278, a logger's connection exists once
# defect 18: eight cores hung in TensorBoard's flush
def test_one_logger_for_eight_cores(tmp_path: Path) -> None:
    class Connection(L.loggers.Logger):
        """Counts who talks to it."""

        def __init__(self) -> None:
            super().__init__()
            self.processes: list[int] = []
            self.steps: list[Any] = []

        @property
        def name(self) -> str:
            return "connection"

        @property
        def version(self) -> int:
            return 0

        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            self.processes.append(os.getpid())
            self.steps.append(step)

        def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
            self.processes.append(os.getpid())

    connection, board = Connection(), L.loggers.TensorBoardLogger(tmp_path)
    trainer(8, logger=[connection, board], log_every_n_steps=1).fit(Logging(), DataLoader(data(), batch_size=2))
    assert set(connection.processes) == {os.getpid()}
    assert connection.steps == [0, 1, 2, 3]
    assert len(list(Path(board.log_dir).glob("events.out.tfevents.*"))) == 1
