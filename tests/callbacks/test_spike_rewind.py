"""SpikeDetection(action="rewind"): the run ends bit for bit as one whose loader does not give the batch that spiked.

The oracle is a batch sampler that draws the same order and leaves the batch out: no rewind, no SpikeDetection.
"""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from trainer.resuming import LOADERS, Rows, SavesEverywhere, assert_same
from trainer.three_ways import QUIET, quiet_trainer

import systolic as L
from systolic.callbacks import ModelCheckpoint, SpikeDetection
from systolic.exceptions import TrainingSpikeException

SAMPLES, ROWS, EPOCHS = 128, 16, 3
Place = tuple[int, int]


class Poisoned(BatchSampler):
    """Eight batches in a shuffled order; some places of the run get a row that spoils the loss, or are left out."""

    def __init__(self, bad: dict[Place, float], left_out: set[Place]) -> None:
        super().__init__(RandomSampler(range(SAMPLES)), ROWS, False)
        self.bad, self.left_out, self.epoch = bad, left_out, -1  # its length is asked for before an epoch begins

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        epoch, self.epoch = self.epoch, -1
        for number, rows in enumerate(super().__iter__()):
            if (epoch, number) in self.left_out:
                continue
            value = self.bad.get((epoch, number))
            yield rows if value is None else [*rows[:-1], SAMPLES + list(self.bad.values()).index(value)]

    def __len__(self) -> int:
        gone = sum(epoch == self.epoch for epoch, _ in self.left_out)
        return SAMPLES // ROWS - gone


def loader(bad: dict[Place, float], left_out: set[Place]) -> DataLoader[Any]:
    """Eight batches an epoch; rows after the last sample are poison."""
    x = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(1))
    y = x.sum(1, keepdim=True)
    poison = torch.tensor(list(bad.values())).reshape(-1, 1)
    data = TensorDataset(torch.cat([x, torch.ones(len(bad), 4)]), torch.cat([y, poison]))
    return DataLoader(data, batch_sampler=Poisoned(bad, left_out))


class Model(L.LightningModule):
    """Dropout, batch statistics, a metric object, and values logged in steps, for epochs, and by hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.dropout, self.second = nn.Dropout(0.3), nn.Linear(6, 1)
        self.error, self.val_error = torchmetrics.MeanSquaredError(), torchmetrics.MeanSquaredError()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.dropout(self.norm(self.first(x))))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        found = self(batch[0])
        loss = F.mse_loss(found, batch[1])
        self.error(found, batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("largest", loss, on_step=False, on_epoch=True, reduce_fx="max")
        self.log("error", self.error, on_step=False, on_epoch=True)
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.log("host", float(outputs["loss"]), on_step=False, on_epoch=True)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        found = self(batch[0])
        self.val_error(found, batch[1])
        self.log("val_error", self.val_error)
        self.log("val_loss", F.mse_loss(found, batch[1]), on_step=True, on_epoch=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        steps = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
        epochs = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        of_plateau = {"scheduler": plateau, "monitor": "loss_epoch"}
        return [optimizer], [{"scheduler": steps, "interval": "step"}, epochs, of_plateau]


@dataclass
class Story:
    """All that a run left."""

    end: dict[str, Any] = field(default_factory=dict)
    rows: list[Any] = field(default_factory=list)
    compiles: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    spike: SpikeDetection | None = None


def train(
    path: Path, bad: dict[Place, float], left_out: set[Place], spike: SpikeDetection | None, *,
    every: dict[str, int] | None = None, validates: bool = True, make: Callable[[], L.LightningModule] = Model,
    extra: Callable[[], list[L.Callback]] = list, **options: Any,
) -> Story:  # fmt: skip
    """Fit the model on data with poison, or without the batches that have it."""
    torch.manual_seed(0)
    rows = Rows()
    checkpoint = ModelCheckpoint(path / "checkpoints", save_last=True, **(every or {"every_n_train_steps": 2}))
    defaults: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "compile": False, "max_epochs": EPOCHS, "log_every_n_steps": 1, "advice": False,
        "use_distributed_sampler": False, "default_root_dir": path,
    }  # fmt: skip
    callbacks = [checkpoint] if spike is None else [spike, checkpoint]
    trainer = L.Trainer(
        **{**QUIET, **defaults, **options, "enable_checkpointing": True, "logger": rows, "callbacks": callbacks}
    )
    module = make()
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(2))
    val = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True) if validates else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(module, loader(bad, left_out), val)
    trainer.save_checkpoint(path / "end.ckpt")
    end = torch.load(path / "end.ckpt", weights_only=True)
    story = Story(rows=rows.rows, compiles=[entry.reason for entry in trainer.compiles], spike=spike)
    kept = ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "epoch", "batches_that_stepped", "random_state")
    story.end = {key: end[key] for key in kept if key in end}
    story.end["metrics"] = {name: float(value) for name, value in trainer.callback_metrics.items()}
    story.end["generator"] = torch.get_rng_state()
    story.warned = [str(warning.message) for warning in caught if "SpikeDetection" in str(warning.message)]
    return story


def require_as_left_out(path: Path, bad: dict[Place, float], **options: Any) -> Story:
    """Run with rewinds, run on data without the poisoned batches, and compare every bit."""
    spike = SpikeDetection(action="rewind", rtol=20.0, warmup=options.pop("warmup", 1))
    found = train(path / "rewound", bad, set(), spike, **options)
    wanted = train(path / "wanted", {}, set(bad), None, **options)
    assert len(found.warned) == spike.rewinds == len(bad), found.warned
    assert_same(wanted.end, found.end, "end")
    assert found.rows == wanted.rows
    assert found.compiles == wanted.compiles
    return found


POISON = {"nan": math.nan, "huge": 1e6}
SLOW = pytest.mark.tables
WAYS: dict[str, dict[str, Any]] = {
    "eager": {},
    "eager, accumulated": {"accumulate_grad_batches": 2},
    "compiled": {"compile": True},
    "compiled, accumulated": {"compile": True, "accumulate_grad_batches": 2},
    "eight cores": {"compile": True, "devices": 8},
    "eight cores, accumulated": {"compile": True, "devices": 8, "accumulate_grad_batches": 2},
}
FAST = {("nan", "compiled, accumulated"), *((poison, way) for poison in POISON for way in list(WAYS)[:2])}


def _marks(poison: str, way: str) -> Any:
    """What spoils the loss makes no difference to how a compiled run goes back: one of the two is enough but for `make test-all`."""
    return () if (poison, way) in FAST else SLOW if poison == "nan" else pytest.mark.slow


@pytest.mark.parametrize(
    ("poison", "way"), [pytest.param(poison, way, marks=_marks(poison, way)) for poison in POISON for way in WAYS]
)
def test_the_run_is_one_without_the_batch(poison: str, way: str, tmp_path: Path) -> None:
    found = require_as_left_out(tmp_path, {(1, 4): POISON[poison]}, **WAYS[way])
    assert json.loads((tmp_path / "rewound/skip_batches.json").read_text()) == [4]
    words = ("batch 4 in epoch 1 is", "expected", "checkpoints", "leaves out batch 4 of epoch 1", "rewind 1 of at most 10")
    assert all(word in found.warned[0] for word in words), found.warned


PLACES = {
    "opens a window": ({(1, 2): math.nan}, {"every_n_train_steps": 3}),
    "closes a window": ({(1, 5): math.nan}, {"every_n_train_steps": 3}),
    "last of its epoch": ({(1, 7): math.nan}, {"every_n_train_steps": 3}),
    "first of its epoch": ({(1, 0): math.nan}, {"every_n_epochs": 1}),
    "second of its epoch": ({(1, 1): 1e6}, {"every_n_epochs": 1}),
    "in two epochs": ({(1, 6): 1e6, (2, 3): math.nan}, {"every_n_epochs": 1}),
    "twice in an epoch": ({(1, 2): math.nan, (1, 6): 1e6}, {"every_n_epochs": 1}),
}


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("name", list(PLACES))
def test_any_batch_can_be_left_out(name: str, window: int, tmp_path: Path) -> None:
    bad, every = PLACES[name]
    found = require_as_left_out(tmp_path, bad, every=every, warmup=0, accumulate_grad_batches=window)
    assert found.spike is not None
    assert found.spike.bad_batches == [batch for _, batch in bad]


OFTEN = ("in two epochs",)


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW if name in OFTEN else pytest.mark.slow) for name in PLACES])
def test_any_batch_can_be_left_out_of_a_compiled_run(name: str, tmp_path: Path) -> None:
    bad, every = PLACES[name]
    require_as_left_out(tmp_path, bad, every=every, warmup=0, accumulate_grad_batches=2, compile=True)


class OneCycle(Model):
    """Its schedule moves a momentum, which programs take as an input once it has changed."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)
        steps = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=24)
        return [optimizer], [{"scheduler": steps, "interval": "step"}]


class Collects(Model):
    """Keeps the losses of an epoch in a metric whose state is a list."""

    def __init__(self) -> None:
        super().__init__()
        self.losses = torchmetrics.CatMetric(nan_strategy="disable")

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.losses.update(loss.detach())
        return loss

    def on_train_epoch_end(self) -> None:
        self.log("median", self.losses.compute().median())
        self.log("count", float(self.losses.compute().numel()))
        self.losses.reset()


class ByHand(Model):
    """Two steps a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        optimizer: Any = self.optimizers()
        for _ in range(2):
            loss = super().training_step(batch, batch_idx)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)


OTHERS: dict[str, dict[str, Any]] = {
    "a momentum that moves": {"make": OneCycle},
    "a metric with a list": {"make": Collects},
    "manual optimization": {"make": ByHand},
    "an average of the weights": {"extra": lambda: [L.callbacks.EMAWeightAveraging(decay=0.9)]},
    "early stopping": {"extra": lambda: [L.callbacks.EarlyStopping("val_error", patience=1, min_delta=9.0)]},
    "loaders that are asked for in every epoch": {"reload_dataloaders_every_n_epochs": 1},
    "split state": {"devices": 8, "strategy": "fsdp"},
}


EAGER = [(name, False) for name in OTHERS if "strategy" not in OTHERS[name]]


@pytest.mark.parametrize(("name", "compile"), [*EAGER, *(pytest.param(name, True, marks=SLOW) for name in OTHERS)])
def test_other_things_that_go_back(name: str, compile: bool, tmp_path: Path) -> None:
    every = {"every_n_train_steps": 2} if compile else {"every_n_epochs": 1}
    require_as_left_out(tmp_path, {(1, 4): math.nan}, every=every, compile=compile, **OTHERS[name])


def test_gradients_that_nobody_clears(tmp_path: Path) -> None:
    """They would stay what the batch made them."""

    class Sums(Model):
        def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
            """Every step goes along all gradients so far."""

    spike = SpikeDetection(action="rewind", rtol=1e9)
    found = train(tmp_path, {(1, 4): math.nan}, set(), spike, make=Sums)
    assert spike.rewinds == 1
    assert all(bool(value.isfinite().all()) for value in found.end["state_dict"].values())


def test_without_validation(tmp_path: Path) -> None:
    """A scheduler of epochs, and nothing at the end of an epoch but ModelCheckpoint."""
    for window in (1, 2):
        bad, every = {(0, 7): math.nan}, {"every_n_train_steps": 2}
        require_as_left_out(tmp_path / str(window), bad, every=every, accumulate_grad_batches=window, validates=False)


def test_the_batch_before_is_left_out_with_a_second_one(tmp_path: Path) -> None:
    """Its step may have spoilt the weights, so that every batch after it is a spike."""
    every = {"every_n_train_steps": 5}
    spike = SpikeDetection(action="rewind", rtol=20.0)
    found = train(tmp_path / "rewound", {(1, 4): math.nan, (1, 5): 1e6}, set(), spike, every=every)
    wanted = train(tmp_path / "wanted", {}, {(1, 3), (1, 4), (1, 5)}, None, every=every)
    assert_same(wanted.end, found.end, "end")
    assert "batch 3 of epoch 1 and batch 5 of epoch 1" in found.warned[1]
    assert json.loads((tmp_path / "rewound/skip_batches.json").read_text()) == [4, 3, 5]


class Faulty(L.LightningModule):
    """Its loss is not finite in one batch; or that batch is skipped, by a `training_step` that returns None."""

    def __init__(self, at: Place, skips: bool) -> None:
        super().__init__()
        self.at, self.skips = at, skips
        self.layer, self.dropout = nn.Linear(4, 1), nn.Dropout(0.3)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor | None:
        x, y = batch[0] if isinstance(batch[0], list) else batch
        here = (self.trainer.current_epoch, batch_idx) == self.at
        if here and self.skips:
            return None
        loss = F.mse_loss(self.layer(self.dropout(x.float())), y)
        return loss * math.nan if here else loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in ("drawing", "stream", "cycled") else SLOW) for kind in LOADERS]
)
def test_every_kind_of_loader(kind: str, tmp_path: Path) -> None:
    """The oracle is a step that skips the batch: it is read in both runs, and draws what it draws."""
    ends: list[Any] = []
    for skips in (True, False):
        torch.manual_seed(0), np.random.seed(0), random.seed(0)
        path = tmp_path / str(skips)
        spike = SpikeDetection(action="rewind", rtol=1e9, exclude_batches_path=path)
        callbacks = [ModelCheckpoint(path, every_n_train_steps=3), *([] if skips else [spike])]
        options: dict[str, Any] = {"enable_checkpointing": True, "advice": False, "use_distributed_sampler": False}
        trainer = quiet_trainer(compile=False, max_epochs=3, callbacks=callbacks, **options)
        module = Faulty((1, 4), skips)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "SpikeDetection: the loss")
            warnings.filterwarnings("ignore", ".*`training_step` returned `None`")
            trainer.fit(module, LOADERS[kind]())
        drawn = torch.rand(3), float(np.random.rand()), random.random()
        ends.append((module.state_dict(), trainer.optimizers[0].state_dict(), drawn))
        assert spike.bad_batches == ([] if skips else [4])
    assert_same(*ends, kind)


def test_a_run_that_is_resumed_leaves_it_out(tmp_path: Path) -> None:
    """A checkpoint between the one that training went back to and the batch knows of it."""

    def fit(path: Path | None) -> Any:
        torch.manual_seed(0 if path is None else 7)
        saves = SavesEverywhere(tmp_path, ("after_batch 1 4",) if path is None else ())
        spike = SpikeDetection(action="rewind", rtol=20.0, exclude_batches_path=tmp_path)
        checkpoint = ModelCheckpoint(tmp_path / "kept", every_n_train_steps=3, enable_version_counter=False)
        callbacks = [saves, spike, checkpoint]
        options: dict[str, Any] = {"enable_checkpointing": True, "advice": False, "compile": False, "max_epochs": EPOCHS}
        trainer = quiet_trainer(callbacks=callbacks, logger=Rows(), log_every_n_steps=1, **options)
        module = Model()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.fit(module, loader({(1, 5): math.nan}, set()), ckpt_path=path)
        told = [w for w in caught if "SpikeDetection" in str(w.message)]
        return len(told), spike.rewinds, (module.state_dict(), trainer.optimizers[0].state_dict(), spike.state_dict())

    whole, resumed = fit(None), fit(tmp_path / "after_batch-1-4.ckpt")
    assert (whole[:2], resumed[:2]) == ((1, 1), (0, 1))
    assert_same(whole[2], resumed[2], "end")


def test_a_resumed_run_goes_back_to_where_it_began(tmp_path: Path) -> None:
    saves = SavesEverywhere(tmp_path, ("after_batch 1 1",))
    options: dict[str, Any] = {"enable_checkpointing": True, "advice": False, "compile": False, "max_epochs": 2}
    quiet_trainer(callbacks=[saves], **options).fit(Model(), loader({}, set()))
    spike = SpikeDetection(action="rewind", rtol=20.0, exclude_batches_path=tmp_path)
    checkpoint = ModelCheckpoint(tmp_path / "kept", every_n_epochs=2)
    with pytest.warns(UserWarning, match=r"goes back to .*after_batch-1-1\.ckpt"):
        quiet_trainer(callbacks=[spike, checkpoint], **options).fit(
            Model(), loader({(1, 3): math.nan}, set()), ckpt_path=tmp_path / "after_batch-1-1.ckpt"
        )
    assert spike.rewinds == 1


def test_without_a_checkpoint_yet(tmp_path: Path) -> None:
    spike = SpikeDetection(action="rewind", rtol=20.0)
    with pytest.raises(L.MisconfigurationException, match="batch 3 in epoch 0 is nan.*every_n_train_steps") as caught:
        train(tmp_path, {(0, 3): math.nan}, set(), spike, every={"every_n_epochs": 1})
    assert isinstance(caught.value.__cause__, TrainingSpikeException)


@pytest.mark.parametrize("callbacks", [[], [{"save_weights_only": True}]])
def test_without_anything_that_writes_checkpoints(callbacks: list[Any], tmp_path: Path) -> None:
    """Said before the first step."""
    chosen = [SpikeDetection(action="rewind"), *(ModelCheckpoint(tmp_path, **options) for options in callbacks)]
    trainer = quiet_trainer(callbacks=chosen, compile=False, enable_checkpointing=bool(callbacks))
    with pytest.raises(L.MisconfigurationException, match=r"no ModelCheckpoint .* writes one"):
        trainer.fit(Model(), loader({}, set()))
    assert trainer.global_step == 0


def test_an_end_to_it(tmp_path: Path) -> None:
    spike = SpikeDetection(action="rewind", rtol=20.0, max_rewinds=2)
    bad = dict.fromkeys(((1, 2), (1, 4), (1, 6)), math.nan)
    with pytest.raises(TrainingSpikeException, match="batch 6") as caught:
        train(tmp_path, bad, set(), spike)
    assert "max_rewinds=2" in caught.value.__notes__[0]
    assert "[(1, 2), (1, 4)]" in caught.value.__notes__[0]
    assert spike.bad_batches == [2, 4]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 'raise' or 'rewind'"):
        SpikeDetection(action="skip")  # pyright: ignore
    with pytest.raises(L.MisconfigurationException, match=r"max_rewinds=0\): Must be >= 1, and an integer"):
        SpikeDetection(action="rewind", max_rewinds=0)
