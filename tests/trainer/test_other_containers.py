"""Lists, dicts and objects that hooks put in the place of others, filled by steps: equal to Lightning, and traced once or twice."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import Method, beside_lightning, loader, module_of, plain, trainer_of

import systolic

T = torch.Tensor


class Meter:
    def __init__(self) -> None:
        self.total, self.count, self.history, self.last, self.mode = 0.0, 0, [], None, "a"

    def update(self, value: Any, count: int) -> None:
        self.total, self.count, self.last = self.total + value * count, self.count + count, value
        self.history.append(value)


@dataclasses.dataclass
class Record:
    k: float = 1.0
    history: list[Any] = dataclasses.field(default_factory=list)


def _appended(module: Any, loss: T) -> T:
    module.kept.append(loss.detach())
    return loss


def _in_dicts(module: Any, loss: T) -> T:
    module.kept.append({"loss": loss.detach(), "n": 16})
    return loss


def _in_lists_of_a_dict(module: Any, loss: T) -> T:
    module.kept["loss"].append(loss.detach())
    module.kept["n"].append(16)
    return loss


def _an_entry(module: Any, loss: T) -> T:
    module.kept["loss"] = loss.detach()
    return loss


def _metered(module: Any, loss: T) -> T:
    module.kept.update(loss.detach(), 16)
    return loss * (1.0 if module.kept.mode == "a" else 0.3)


def _metered_number(module: Any, loss: T) -> T:
    module.kept.update(loss.item(), 16)
    return loss


def _one_of_several(module: Any, loss: T) -> T:
    module.kept["train"].update(loss.detach(), 16)
    return loss


def _scaled(module: Any, loss: T) -> T:
    return loss * module.kept["k"] * len(module.kept["z"])


def _scaled_by_record(module: Any, loss: T) -> T:
    module.kept.history.append(loss.detach())
    return loss * module.kept.k


def _next_meter(meter: Meter) -> Meter:
    other = Meter()
    other.mode = "b" if meter.mode == "a" else "a"
    return other


Case = tuple[Callable[[Any], Any], Callable[[Any, T], T], int]
"""What stands in the place of another one (of None at first), the step, and how many traces it may take."""

CASES: dict[str, Case] = {
    "a list": (lambda old: [], _appended, 2),
    "a list of dicts": (lambda old: [], _in_dicts, 2),
    "a deque": (lambda old: deque(maxlen=2), _appended, 3),
    "a dict of lists": (lambda old: {"loss": [], "n": []}, _in_lists_of_a_dict, 2),
    "a defaultdict": (lambda old: defaultdict(list), _in_lists_of_a_dict, 3),
    "a dict": (lambda old: {}, _an_entry, 2),
    "settings": (lambda old: {"k": old["k"] * 0.5 if old else 1.0, "z": [1, 2]}, _scaled, 2),
    "a meter": (lambda old: _next_meter(old) if old else Meter(), _metered, 6),
    "a meter of numbers": (lambda old: Meter(), _metered_number, 5),
    "meters": (lambda old: {"train": Meter(), "val": Meter()}, _one_of_several, 4),
    "a record": (lambda old: Record(old.k * 0.5 if old else 1.0), _scaled_by_record, 3),
}


def _methods(case: Case, hook: str) -> dict[str, Method]:
    make, step, _ = case

    def between(module: Any, *_: Any) -> None:
        module.seen.append(plain(module.kept))
        module.kept = make(module.kept)

    return {"training_step": lambda module, batch, i: step(module, module.loss(batch)), hook: between}


def _prepare(case: Case) -> Callable[[Any], None]:
    return lambda module: setattr(module, "kept", case[0](None))


def _held(module: Any) -> Any:
    return plain([module.seen, module.kept])


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("hook", ["on_train_epoch_end", "on_train_batch_end", "on_train_epoch_start"])
def test_put_in_its_place(name: str, hook: str) -> None:
    case = CASES[name]
    module = beside_lightning(_methods(case, hook), _held, prepare=_prepare(case), epochs=5, advice=False)
    reasons = [one.reason for one in module.trainer.compiles if one.trace_seconds > 0]
    assert len(reasons) <= case[2], reasons


@pytest.mark.parametrize("name", ["a list", "a dict of lists", "a meter"])
def test_on_four_cores(name: str) -> None:
    case = CASES[name]
    beside_lightning(_methods(case, "on_train_epoch_end"), _held, prepare=_prepare(case), devices=4, epochs=3, advice=False)


@pytest.mark.parametrize("name", ["a list", "a dict of lists", "a defaultdict", "a meter"])
def test_in_validation(name: str) -> None:
    make, step, most = CASES[name]

    def between(module: Any) -> None:
        module.seen.append(plain(module.kept))
        module.kept = make(module.kept)

    def validation_step(module: Any, batch: Any, i: int) -> None:
        step(module, module.loss(batch))

    methods = {"validation_step": validation_step, "on_validation_epoch_end": between}
    module = beside_lightning(methods, _held, prepare=_prepare(CASES[name]), epochs=8, advice=False)
    reasons = [one.reason for one in module.trainer.compiles if one.trace_seconds > 0]
    assert len(reasons) <= 1 + 2 * most, reasons  # the last batch is a smaller one


def _two_names(module: Any) -> None:
    module.kept = []
    module.same = module.kept


def _handed_on(module: Any, loss: T) -> T:
    module.kept.append(loss.detach())
    module.same = module.kept
    return loss


def _by_its_length(module: Any, loss: T) -> T:
    module.kept.append(loss.detach())
    return loss * (1 + 0.1 * len(module.kept))


@pytest.mark.parametrize("step", [_appended, _handed_on, _by_its_length])
@pytest.mark.parametrize("prepare", [_two_names, lambda module: vars(module).update(kept=[], same=None)])
def test_a_list_that_counts_otherwise(step: Callable[[Any, T], T], prepare: Callable[[Any], None]) -> None:
    def on_train_epoch_end(module: Any) -> None:
        module.seen.append(plain([module.kept, module.same]))
        module.kept = []

    methods = {
        "training_step": lambda module, batch, i: step(module, module.loss(batch)),
        "on_train_epoch_end": on_train_epoch_end,
    }
    beside_lightning(methods, _held, prepare=prepare, epochs=4, advice=False)


def test_outputs_of_an_epoch_are_freed() -> None:
    outputs: list[list[weakref.ref[T]]] = []
    alive: list[list[int]] = []

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.kept.append(module(batch[0]))

    def on_validation_epoch_end(module: Any) -> None:
        outputs.append([weakref.ref(one) for one in module.kept])
        module.kept = []

    def on_train_epoch_end(module: Any) -> None:
        gc.collect()
        alive.append([sum(one() is not None for one in epoch) for epoch in outputs])

    methods = {
        "validation_step": validation_step,
        "on_validation_epoch_end": on_validation_epoch_end,
        "on_train_epoch_end": on_train_epoch_end,
    }
    module = module_of(systolic, methods, lambda module: setattr(module, "kept", []))
    trainer_of(systolic, max_epochs=4).fit(module, loader(48, 1), loader(48, 2))
    # whose list stood there in the last step is known until the next one
    assert alive == [[0, 3], [0, 0, 3], [0, 0, 0, 3], [0, 0, 0, 0, 3]]
