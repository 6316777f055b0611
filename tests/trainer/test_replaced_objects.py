"""Lists, dicts and objects that a step fills and a hook replaces, while other hooks keep notes that no step reads."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, plain

T = torch.Tensor


class Meter:
    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0
        self.values: list[T] = []
        self.total: Any = torch.zeros(())

    def update(self, value: T) -> None:
        self.sum += value.item()
        self.count += 1

    def add(self, value: T) -> None:
        self.values.append(value)
        self.total = self.total + value


class Case:
    """What a step does with its loss, what a hook puts in place of it, and what it has kept until then."""

    def __init__(self, fill: Callable[..., Any], replace: Callable[[Any], Any], kept: Callable[[Any], Any]) -> None:
        self.fill, self.replace, self.kept = fill, replace, kept


CASES = {
    "list": Case(lambda m, i, loss: m.losses.append(loss.item()), lambda m: setattr(m, "losses", []), lambda m: m.losses),
    "extended": Case(
        lambda m, i, loss: m.losses.extend((loss * torch.ones(i + 1)).tolist()),
        lambda m: setattr(m, "losses", []),
        lambda m: m.losses,
    ),
    "tensors": Case(lambda m, i, loss: m.losses.append(loss.detach()), lambda m: setattr(m, "losses", []), lambda m: m.losses),
    "cleared": Case(lambda m, i, loss: m.losses.append(loss.item()), lambda m: m.losses.clear(), lambda m: m.losses),
    "meter": Case(
        lambda m, i, loss: m.meter.update(loss), lambda m: setattr(m, "meter", Meter()), lambda m: [m.meter.sum, m.meter.count]
    ),
    "meter of tensors": Case(
        lambda m, i, loss: m.meter.add(loss.detach()),
        lambda m: setattr(m, "meter", Meter()),
        lambda m: [m.meter.values, m.meter.total],
    ),
    "dict": Case(lambda m, i, loss: m.table.update({i: loss.item()}), lambda m: setattr(m, "table", {}), lambda m: m.table),
    "list that a step makes": Case(
        lambda m, i, loss: m.table.setdefault("a", []).append(loss.item()), lambda m: setattr(m, "table", {}), lambda m: m.table
    ),
    "defaultdict": Case(
        lambda m, i, loss: m.lists[i % 2].append(loss.item()),
        lambda m: setattr(m, "lists", collections.defaultdict(list)),
        lambda m: dict(m.lists),
    ),
    "deque": Case(
        lambda m, i, loss: m.last.append(loss.item()),
        lambda m: setattr(m, "last", collections.deque(maxlen=9)),
        lambda m: m.last,
    ),
    "in a dict": Case(
        lambda m, i, loss: m.nested["x"]["y"].append(loss.item()),
        lambda m: m.nested.update(x={"y": []}),
        lambda m: m.nested["x"]["y"],
    ),
    "of an object": Case(
        lambda m, i, loss: m.meter.values.append(loss.item()),
        lambda m: setattr(m.meter, "values", []),
        lambda m: m.meter.values,
    ),
    "never": Case(lambda m, i, loss: m.table.setdefault("a", []).append(loss.item()), lambda m: None, lambda m: m.table),
}


def _prepare(module: Any) -> None:
    module.losses, module.table, module.lists = [], {}, collections.defaultdict(list)
    module.meter, module.last, module.nested = Meter(), collections.deque(maxlen=9), {"x": {"y": []}}
    module.notes, module.message = [], ""


def _taken(module: Any, case: Case) -> None:
    module.notes.append(len(module.notes))
    module.message = f"{len(module.notes)} notes"
    module.seen.append(plain(case.kept(module)))
    case.replace(module)


@pytest.mark.thin(2)
@pytest.mark.parametrize("hook", ["on_train_epoch_end", "on_train_batch_end"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_a_step_fills_is_what_is_there(case: Case, hook: str) -> None:
    def step(module: Any, batch: Any, i: int) -> T:
        loss = module.loss(batch)
        case.fill(module, i, loss)
        return loss

    def batch_end(module: Any, outputs: Any, batch: Any, i: int) -> None:
        module.notes.append(i)
        if i % 2:
            _taken(module, case)

    ends = {"on_train_epoch_end": lambda module: _taken(module, case), "on_train_batch_end": batch_end}
    beside_lightning({"training_step": step, hook: ends[hook]}, lambda module: module.seen, prepare=_prepare, epochs=3)


def _made_new_in_each_step(module: Any, batch: Any, i: int) -> T:
    module.losses, module.table = [], {0: i}
    module.last = 0
    for part in (module.inner(batch[0]), module(batch[0])):
        module.losses.append(part)
        module.table[len(module.table)] = part.mean()
        module.last += 1
    module.note = module.losses[-1].detach().sum()
    return module.loss(batch) + sum(part.square().mean() for part in module.losses) * 0.01


def test_what_a_step_makes_new_asks_for_no_trace() -> None:
    def held(module: Any) -> Any:
        return plain([module.losses, module.table, module.last, module.note])

    module = beside_lightning({"training_step": _made_new_in_each_step}, held, prepare=_prepare)
    assert len(module.trainer.compiles) == 1, [one.reason for one in module.trainer.compiles]


def test_in_validation() -> None:
    def step(module: Any, batch: Any, i: int) -> None:
        module.losses.extend((module(batch[0]) ** 2).sum(1).tolist())

    def end(module: Any) -> None:
        module.seen.append(plain(module.losses))
        module.losses = []

    beside_lightning({"validation_step": step, "on_validation_epoch_end": end}, lambda module: module.seen, prepare=_prepare)
