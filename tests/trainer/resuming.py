"""Runs that are resumed from every checkpoint they wrote, and compared bit for bit with the run that wrote them."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset, get_worker_info

import systolic as L
from systolic.loggers import Logger

SAMPLES = 30  # eight batches of four, the last one smaller


def columns(count: int = SAMPLES) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(1))
    return x, x.sum(1, keepdim=True)


class Drawing(Dataset[Any]):
    """Adds noise of PyTorch's, NumPy's and Python's generators to its samples, and counts how many it loaded."""

    def __init__(self) -> None:
        self.columns = columns()
        self.loaded = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        self.loaded += 1
        noise = torch.rand(4) + float(np.random.rand()) + random.random() + random.gauss(0, 1)
        return self.columns[0][index] + 0.1 * noise, self.columns[1][index]


class Stream(IterableDataset[Any]):
    """Draws as `Drawing`, in an order of its own; knows where it is."""

    def __init__(self) -> None:
        self.columns = columns()
        self.next, self.epoch = 0, 0

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next, self.epoch = state["next"], state["epoch"]

    def __iter__(self) -> Any:
        info = get_worker_info()
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        mine = order if info is None else order[info.id :: info.num_workers]
        while self.next < len(mine):
            self.next += 1
            index = mine[self.next - 1]
            yield self.columns[0][index] + 0.1 * torch.rand(4) + random.random(), self.columns[1][index]
        self.next, self.epoch = 0, self.epoch + 1


class OwnLoader:
    """A loader of its own kind with a state."""

    def __init__(self) -> None:
        self.stream = Stream()

    def __iter__(self) -> Any:
        return iter(DataLoader(self.stream, batch_size=4))

    def state_dict(self) -> Any:
        return self.stream.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.stream.load_state_dict(state)


LOADERS: dict[str, Callable[[], Any]] = {
    "table": lambda: DataLoader(TensorDataset(*columns()), batch_size=4, shuffle=True),
    "drawing": lambda: DataLoader(Drawing(), batch_size=4, shuffle=True),
    "generator": lambda: DataLoader(Drawing(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5)),
    "replacement": lambda: DataLoader(
        TensorDataset(*columns()),
        batch_size=4,
        sampler=RandomSampler(range(SAMPLES), True, SAMPLES, torch.Generator().manual_seed(3)),
    ),
    "workers": lambda: DataLoader(Drawing(), batch_size=4, shuffle=True, num_workers=2),
    "persistent": lambda: DataLoader(Drawing(), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True),
    "stream": lambda: DataLoader(Stream(), batch_size=4),
    "stream workers": lambda: DataLoader(Stream(), batch_size=4, num_workers=2),
    "own": OwnLoader,
    "cycled": lambda: [
        DataLoader(TensorDataset(*columns()), batch_size=4, shuffle=True),
        DataLoader(TensorDataset(*columns(10)), batch_size=4, shuffle=True),
    ],
}


class Model(L.LightningModule):
    """Dropout, batch statistics, logged values of every kind."""

    def __init__(self, total_steps: int = 60) -> None:
        super().__init__()
        self.total_steps = total_steps
        self.first, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.dropout, self.second = nn.Dropout(0.3), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.dropout(self.norm(self.first(x.float()))))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch[0] if isinstance(batch[0], list) else batch
        loss = F.mse_loss(self(x), y)
        self.log("loss", loss, on_step=True, on_epoch=True, batch_size=len(y))
        self.log("largest", loss, on_step=False, on_epoch=True, reduce_fx="max")
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.log("host", float(batch_idx), on_step=False, on_epoch=True, batch_size=4)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.mse_loss(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        steps = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=self.total_steps)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        of_plateau = {"scheduler": plateau, "monitor": "val_loss", "interval": "step", "frequency": 3, "strict": False}
        return [optimizer], [{"scheduler": steps, "interval": "step"}, of_plateau]


class Rows(Logger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    name, version = "rows", "0"

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.rows.append((step, dict(metrics)))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """None are kept."""


class Counting(L.Callback):
    """Has a state of its own."""

    def __init__(self) -> None:
        self.batches = self.validations = self.epochs = self.begun = self.validated = 0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.batches += 1

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self.begun += not trainer.sanity_checking

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.validated += not trainer.sanity_checking

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.validations += not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.epochs += 1

    def state_dict(self) -> dict[str, int]:
        names = ("batches", "validations", "epochs", "begun", "validated")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, int]) -> None:
        vars(self).update(state)


class SavesEverywhere(L.Callback):
    """Saves in many hooks, under the hook's name, the epoch and the number of the batch."""

    HOOKS = (
        "on_train_epoch_start", "on_train_batch_start", "after_batch", "on_validation_start",
        "on_validation_batch_end", "on_validation_end", "on_train_epoch_end",
    )  # fmt: skip

    def __init__(self, directory: Path, wanted: tuple[str, ...]) -> None:
        self.directory, self.wanted = directory, wanted
        self.paths: dict[str, Path] = {}
        self.batch = 0

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.batch = batch_idx
        self.save(trainer, "on_train_batch_start")

    def on_step_dispatched(self, trainer: Any, pl_module: Any, batch_idx: int) -> None:
        if trainer.training:
            self.batch = batch_idx
            self.save(trainer, "after_batch")

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self.save(trainer, "on_train_epoch_start")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.save(trainer, "on_train_epoch_end")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self.save(trainer, "on_validation_start")

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.save(trainer, "on_validation_batch_end")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.save(trainer, "on_validation_end")

    def save(self, trainer: Any, hook: str) -> None:
        name = f"{hook} {trainer.current_epoch} {self.batch}"
        if name in self.wanted and not trainer.sanity_checking:
            self.paths[name] = self.directory / f"{name.replace(' ', '-')}.ckpt"
            trainer.save_checkpoint(self.paths[name])


@dataclass
class Story:
    """All that a run left."""

    end: dict[str, Any] = field(default_factory=dict)
    losses: list[tuple[int, int, float]] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    state: dict[str, int] = field(default_factory=dict)


class Losses(L.Callback):
    def __init__(self, story: Story) -> None:
        self.story = story

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.story.losses.append((trainer.current_epoch, batch_idx, float(outputs["loss"])))


def run(
    path: Path, loader: Any, ckpt_path: Path | None = None, extra: tuple[L.Callback, ...] = (), *,
    looks: bool = True, val: Any = None, make: Callable[[], Model] = Model, **options: Any,
) -> Story:  # fmt: skip
    """Fit the model; a resumed run begins with generators in other states and other weights."""
    seed = 0 if ckpt_path is None else 1234
    torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)
    story, rows, counting = Story(), Rows(), Counting()
    watchers = [Losses(story), counting] if looks else []
    defaults: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "compile": False, "max_epochs": 2, "enable_progress_bar": False,
        "enable_model_summary": False, "enable_checkpointing": False, "num_sanity_val_steps": 1, "log_every_n_steps": 1,
        "advice": False, "use_distributed_sampler": False,
    }  # fmt: skip
    trainer = L.Trainer(**{**defaults, **options, "logger": rows, "callbacks": [*watchers, *extra]})
    module = make()
    val = DataLoader(TensorDataset(*columns(8)), batch_size=4) if val is None else val
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "steps_per_dispatch")
        given = {"datamodule": loader} if isinstance(loader, L.LightningDataModule) else {"train_dataloaders": loader}
        trainer.fit(module, val_dataloaders=None if "datamodule" in given else val, ckpt_path=ckpt_path, **given)
    trainer.save_checkpoint(path / "end.ckpt")
    end = torch.load(path / "end.ckpt", weights_only=True)
    story.end = {key: end[key] for key in ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "epoch")}
    story.end["metrics"] = {name: float(value) for name, value in trainer.callback_metrics.items()}
    if "random_state" in end:
        story.end["random_state"] = end["random_state"]
    story.rows, story.state = rows.rows, counting.state_dict()
    return story


def require_equal(whole: Story, resumed: Story, name: str, *, repeats_validation: bool = False) -> None:
    """The resumed run is the rest of the whole one, bit for bit."""
    count = len(resumed.losses)
    assert whole.losses[len(whole.losses) - count :] == resumed.losses, f"{name}: {whole.losses}\n{resumed.losses}"
    assert_same(whole.end, resumed.end, name)
    assert whole.state == resumed.state, name
    tail = whole.rows[len(whole.rows) - len(resumed.rows) :]
    assert tail == resumed.rows, f"{name}: {tail}\n{resumed.rows}"


def assert_same(one: Any, other: Any, name: str) -> None:
    """Equal in every bit."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), f"{name}: {one} {other}"
    elif isinstance(one, dict):
        assert list(one) == list(other), f"{name}: {list(one)} {list(other)}"
        for key in one:
            assert_same(one[key], other[key], f"{name}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), name
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{name}[{index}]")
    else:
        assert one == other or one != one, f"{name}: {one} {other}"
