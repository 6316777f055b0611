"""What a step does not read asks for no new trace; what it reads is noticed, whatever way it is read (contract C5)."""

from __future__ import annotations

import copy
import json
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic
import systolic as L

T = torch.Tensor
STEPS = 8
SEEN: list[float] = []
QUIET: dict[str, Any] = {"accelerator": "cpu", "devices": 1, "max_steps": STEPS, "logger": False, "advice": False,
                         "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}  # fmt: skip


class Keeper(L.LightningModule):
    """Keeps things of all kinds between the steps."""

    def __init__(self, read: Callable[[Keeper], float]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.losses: list[Any] = []
        self.same_losses = self.losses
        self.by_step: dict[int, float] = {}
        self.batches: set[int] = set()
        self.status = ""
        self.table = np.zeros(3)
        self.read = read

    def training_step(self, batch: list[T], batch_idx: int) -> T:
        return self.layer(batch[0]).square().mean() * (1.0 + self.read(self))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        loss = outputs["loss"]
        self.losses.append(loss.item() if batch_idx % 2 else loss)
        self.by_step[batch_idx] = 0.5
        self.batches.add(batch_idx)
        self.status = f"batch {batch_idx}"
        self.table = self.table + 1
        SEEN.append(1.0)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def _fit(read: Callable[[Keeper], float], compile: bool) -> tuple[list[float], int]:
    SEEN.clear()
    torch.manual_seed(0)
    data = DataLoader(TensorDataset(torch.randn(4 * STEPS, 4)), batch_size=4)
    module, trainer = Keeper(read), L.Trainer(compile=compile, **QUIET)
    trainer.fit(module, data)
    return [float(loss) for loss in module.losses], len(trainer.compiles)


def test_what_hooks_between_the_steps_keep_asks_for_no_trace() -> None:
    losses, traces = _fit(lambda module: 0.0, compile=True)
    assert traces == 1
    assert losses == pytest.approx(_fit(lambda module: 0.0, compile=False)[0], rel=1e-6)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.notes: list[int] = []

    def forward(self, x: T) -> T:
        return self.layer(x)


class LongerBlock(Block):
    pass


def test_classes_that_derive_from_each_other_are_told_apart() -> None:
    model = nn.Sequential(Block(), LongerBlock())
    function = systolic.jit(lambda x: model(x).sum())
    for step in range(4):
        function(torch.ones(2, 4))
        for block in model:
            block.notes.append(step)
    assert len(function.compiles) == 1
    assert not {"__getattribute__", "__setattr__", "__delattr__"} & (vars(Block).keys() | vars(LongerBlock).keys())


READS: dict[str, Callable[[Keeper], float]] = {
    "attribute": lambda module: len(module.losses),
    "another name of it": lambda module: len(module.same_losses),
    "computed name": lambda module: len(getattr(module, "".join(["los", "ses"]))),
    "vars": lambda module: len(vars(module)["losses"]),
    "__dict__": lambda module: len(module.__dict__["by_step"]),
    "copy": lambda module: len(copy.copy(module).losses),
    "set": lambda module: len(module.batches),
    "text": lambda module: float(len(module.status) > 6) + float(module.status == "batch 3"),
    "dict": lambda module: sum(module.by_step.values()),
    "set in the step": lambda module: setattr(module, "status", "") or 0.0,
}


@pytest.mark.parametrize("way", READS)
def test_what_a_step_reads_is_noticed(way: str) -> None:
    losses, _ = _fit(READS[way], compile=True)
    assert losses == pytest.approx(_fit(READS[way], compile=False)[0], rel=1e-5)


class Validated(Keeper):
    def validation_step(self, batch: list[T], batch_idx: int) -> None:
        self.log("read", float(len(self.losses)))


def test_what_one_step_leaves_alone_another_may_read() -> None:
    read: list[list[float]] = []
    for compile in (True, False):
        found: list[float] = []

        class Note(L.Callback):
            def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
                found.append(float(trainer.callback_metrics["read"]))  # noqa: B023

        loader = DataLoader(TensorDataset(torch.randn(4 * STEPS, 4)), batch_size=4)
        one = DataLoader(TensorDataset(torch.randn(4, 4)), batch_size=4)
        arguments = {**QUIET, "callbacks": [Note()], "val_check_interval": 2, "num_sanity_val_steps": 0}
        trainer = L.Trainer(compile=compile, **arguments)
        trainer.fit(Validated(lambda module: 0.0), loader, one)
        read.append(found)
    assert read[0] == read[1] == [2.0, 4.0, 6.0, 8.0]


class Modes(L.LightningModule):
    """Its way changes by what a hook set; each way leaves alone what the other reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.mode = "first"
        self.history: list[int] = []

    def training_step(self, batch: list[T], batch_idx: int) -> T:
        loss = self.layer(batch[0]).square().mean()
        return loss if self.mode == "first" else loss * len(self.history)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.history.append(batch_idx)
        self.mode = "first" if batch_idx < 3 else "second"
        SEEN.append(float(outputs["loss"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def test_another_way_through_the_step_may_read_what_the_first_left_alone() -> None:
    losses = []
    for compile in (True, False):
        SEEN.clear()
        torch.manual_seed(0)
        data = DataLoader(TensorDataset(torch.randn(4 * STEPS, 4)), batch_size=4)
        L.Trainer(compile=compile, **QUIET).fit(Modes(), data)
        losses.append(list(SEEN))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


# ---- lists that the step itself appends to

APPENDED: dict[str, Callable[[list[Any]], float]] = {
    "len": len,
    "sum": sum,
    "last": lambda history: history[-1],
    "truth": lambda history: 1.0 if history else 0.5,
    "unpacked": lambda history: max(*history, 0),
    "tuple": lambda history: len(tuple(history)),
    "list": lambda history: len(list(history)),
    "added": lambda history: len([0] + history),  # noqa: RUF005
    "numpy": lambda history: float(np.array(history).sum()),
    "tensor": lambda history: float(torch.tensor(history).numel()),
    "json": lambda history: len(json.dumps(history)),
    "copied": lambda history: len(copy.copy(history)),
    "compared": lambda history: 2.0 if history == [1, 1, 1] else 1.0,
    "shown": lambda history: len(str(history)),
    "taken": lambda history: history.pop(0),
}


@pytest.mark.parametrize("way", APPENDED)
def test_a_list_that_the_step_appends_plain_values_to_and_reads(way: str) -> None:
    def run(compiled: bool) -> tuple[list[float], list[int]]:
        module = nn.Identity()
        module.history = []

        def step(x: T) -> T:
            module.history.append(1)
            return x.sum() * APPENDED[way](module.history)

        function = systolic.jit(step) if compiled else step
        return [float(function(torch.full((2,), float(i)))) for i in range(5)], module.history

    assert run(True) == run(False)


def test_a_returned_list_is_the_one_of_its_step() -> None:
    module = nn.Identity()
    module.history = []

    def step(x: T) -> dict[str, Any]:
        module.history.append(2)
        return {"loss": x.sum(), "history": module.history}

    function = systolic.jit(step)
    assert [len(function(torch.ones(2))["history"]) for _ in range(4)] == [1, 2, 3, 4]


def test_a_list_inside_of_a_tuple_is_looked_at() -> None:
    def run(compiled: bool) -> list[float]:
        holder = types.SimpleNamespace(pair=([], 3.0))

        def step(x: T) -> T:
            holder.pair[0].append(1)
            return x.sum() * len(holder.pair[0])

        function = systolic.jit(step) if compiled else step
        return [float(function(torch.full((2,), float(i)))) for i in range(5)]

    assert run(True) == run(False)


def test_a_list_that_is_only_appended_to_is_traced_once_for_all_steps() -> None:
    module = nn.Identity()
    module.history = []
    traced = []

    def step(x: T) -> T:
        traced.append(None) if torch.compiler.is_compiling() else None
        module.history += [x.mean()]
        module.history.extend([x.mean(), 1])
        return x.sum()

    function = systolic.jit(step)
    for i in range(6):
        function(torch.full((2,), float(i)))
    assert [float(value) for value in module.history] == [v for i in range(6) for v in (float(i), float(i), 1.0)]
    assert len(function._engine.compiles) <= 2
