"""Objects of the user's own in which steps keep values: they hold after fit what they hold under Lightning."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, module_of, plain, trainer_of
from torch import nn

import systolic

T = torch.Tensor


class Meter:
    """The average meter of countless scripts."""

    def __init__(self) -> None:
        self.value = self.sum = self.count = 0

    def update(self, value: Any, count: int = 1) -> None:
        self.value = value
        self.sum += value * count
        self.count += count
        self.average = self.sum / self.count


class Total:
    def __init__(self) -> None:
        self.total: Any = torch.zeros(())

    def update(self, value: T) -> None:
        self.total = self.total + value


class FirstOrMore:
    total: Any = None

    def update(self, value: T) -> None:
        self.total = value if self.total is None else self.total + value


class History:
    def __init__(self) -> None:
        self.losses: list[Any] = []
        self.by_name: dict[str, list[Any]] = {}
        self.calls = {"n": 0}
        self.names: list[str] = []

    def add(self, name: str, value: Any) -> None:
        self.losses.append(value)
        self.by_name.setdefault(name, []).append(value)
        self.calls["n"] += 1
        self.names.append(name)


class Window:
    def __init__(self) -> None:
        self.last: Any = collections.deque(maxlen=3)
        self.total = 0.0

    def update(self, value: Any) -> None:
        self.last.append(value)
        self.total += value


class Feature:
    """A hook with a place for what it saw."""

    def __init__(self, module: nn.Module) -> None:
        module.register_forward_hook(self.forward)
        module.register_full_backward_hook(self.backward)
        self.seen: Any = None
        self.calls = 0

    def forward(self, module: nn.Module, inputs: Any, output: T) -> None:
        self.seen = output.detach()
        self.calls += 1

    def backward(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self.gradient = outputs[0].detach()


class Pair:
    def __init__(self, loss: Any, place: int) -> None:
        self.loss, self.place = loss, place


@dataclasses.dataclass(frozen=True)
class Record:
    loss: Any
    place: int = 0


class Slotted:
    __slots__ = ("loss", "place")

    def __init__(self, loss: Any, place: int) -> None:
        self.loss, self.place = loss, place


GLOBAL = Meter()
FEATURES: dict[str, Any] = {}


def _own(module: Any, name: str, made: Callable[[], Any]) -> Any:
    if not hasattr(module, name):
        setattr(module, name, made())
    return getattr(module, name)


def made_in_the_first_step(module: Any, batch: Any, i: int, loss: T) -> None:
    _own(module, "meter", Meter).update(loss.item(), len(batch[0]))
    module.seen.append(module.meter.average)


def made_in_each_epoch(module: Any, batch: Any, i: int, loss: T) -> None:
    if i == 0:
        module.meter = Meter()
        module.several = [module.meter]
    module.meter.update(loss.item())
    module.seen.append((module.several[0].average, module.several[0] is module.meter))


def under_two_names(module: Any, batch: Any, i: int, loss: T) -> None:
    module.alias.update(loss.item())


def in_a_dict_that_makes_them(module: Any, batch: Any, i: int, loss: T) -> None:
    module.meters["a"].update(loss.item())
    module.meters["b"].update(2 * loss.item())


def of_the_file(module: Any, batch: Any, i: int, loss: T) -> None:
    if module.current_epoch == 0 and i == 0:
        GLOBAL.__init__()
    GLOBAL.update(loss.item())
    module.seen.append(GLOBAL.average)


def tensors(module: Any, batch: Any, i: int, loss: T) -> None:
    module.total.update(loss.detach())
    module.first.update(loss.detach())


def lists(module: Any, batch: Any, i: int, loss: T) -> None:
    module.history.add("loss", loss.item())
    module.history.add("tensor", loss.detach())
    module.window.update(loss.item())


def inside_of_others(module: Any, batch: Any, i: int, loss: T) -> None:
    module.outer_object.inner.update(loss.item())
    module.outer_object.last = loss.detach()


def made_and_kept(module: Any, batch: Any, i: int, loss: T) -> None:
    module.last = Record(loss.detach(), i)
    module.pair = Pair([loss.detach(), {"x": loss.item()}], i)
    module.seen += [Pair(loss.item(), i), Record(loss.item()), Slotted(loss.item(), i)]


def sets(module: Any, batch: Any, i: int, loss: T) -> None:
    module.labels = getattr(module, "labels", set())
    module.labels.update(batch[1].tolist())
    module.seen.append(len(module.labels))


def by_hooks(module: Any, batch: Any, i: int, loss: T) -> None:
    module.seen.append(module.features[1].seen.mean())


def rounded(module: Any, batch: Any, i: int, loss: T) -> None:
    module.seen += [round(loss.item(), 4), round(loss.item() ** 2 / 3, 3), [round(v, 2) for v in module(batch[0])[0].tolist()]]
    module.doubles = getattr(module, "doubles", 0.0) + loss.double().item() / 3


BODIES = [
    made_in_the_first_step, made_in_each_epoch, under_two_names, in_a_dict_that_makes_them, of_the_file, tensors, lists,
    inside_of_others, made_and_kept, sets, by_hooks, rounded,
]  # fmt: skip


def _prepare(module: Any) -> None:
    module.meter2 = module.alias = Meter()
    module.meters = collections.defaultdict(Meter)
    module.total, module.first = Total(), FirstOrMore()
    module.history, module.window = History(), Window()
    module.outer_object = Pair(None, 0)
    module.outer_object.inner = Meter()
    module.features = [Feature(module.norm), Feature(module.outer)]
    module.norm.register_forward_hook(lambda _, inputs, output: FEATURES.update(norm=output.detach()))


@pytest.mark.parametrize("body", BODIES)
def test_holds_what_it_holds_under_lightning(body: Callable[..., None]) -> None:
    def step(module: Any, batch: Any, i: int) -> T:
        loss = module.loss(batch)
        body(module, batch, i, loss)
        return loss

    def held(module: Any) -> Any:
        names = ("seen", "alias", "meter2", "meters", "total", "first", "history", "window", "outer_object", "last", "pair")
        return plain([getattr(module, name, None) for name in names]), plain(module.features[0]), plain(FEATURES)

    beside_lightning({"training_step": step}, held, prepare=_prepare)


class _Noting(torch.utils.data.Dataset[Any]):
    """Notes in an object, which a module holds, too, what the loader's thread has read."""

    def __init__(self, noted: History) -> None:
        self.noted = noted

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        self.noted.add("row", index)
        return torch.full((4,), float(index)), index % 3


def test_what_a_loader_writes_meanwhile_stays() -> None:
    noted = History()

    def step(module: Any, batch: Any, i: int) -> T:
        module.meter2.update(module.loss(batch).item())
        return module.loss(batch)

    def prepare(module: Any) -> None:
        module.meter2, module.noted = Meter(), noted

    module = module_of(systolic, {"training_step": step}, prepare)
    trainer_of(systolic).fit(module, torch.utils.data.DataLoader(_Noting(noted), batch_size=8))
    assert noted.losses == list(range(96))
    assert noted.calls == {"n": 96}
    assert module.meter2.count == 12
