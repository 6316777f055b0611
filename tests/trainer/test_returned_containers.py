"""Steps that return instances of the user's own containers and objects: the same classes and values as under Lightning."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, require_same


class Prediction(OrderedDict):  # type: ignore[type-arg]
    """COMET's: entries are attributes, too."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key: str, value: object) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class DotDict(dict):  # type: ignore[type-arg]
    """Its attributes are entries."""

    __getattr__ = dict.get
    __setattr__ = dict.__setitem__  # type: ignore[assignment]


class AttrDict(dict):  # type: ignore[type-arg]
    """Its entries are its attributes."""

    def __init__(self, *args: object, **entries: object) -> None:
        super().__init__(*args, **entries)
        self.__dict__ = self


class Closed(dict):  # type: ignore[type-arg]
    """Its entries cannot be set."""

    count = 0

    def __setitem__(self, key: str, value: object) -> None:
        raise TypeError("closed")


def _closed(**entries: object) -> Any:
    made = Closed(**entries)
    made.count = 3
    return made


class Rows(list):  # type: ignore[type-arg]
    """A list with an attribute."""

    total: Any = None


class Counts(defaultdict):  # type: ignore[type-arg]
    """A dict with a default."""


class Last(deque):  # type: ignore[type-arg]
    """A deque with an end."""


class Mapped(UserDict):  # type: ignore[type-arg]
    """A dict that is no dict."""


@dataclass
class Record:
    """A dataclass."""

    scores: Any
    others: Any = None


@dataclass(slots=True)
class Slots:
    """A dataclass with slots."""

    scores: Any


class Plain:
    """An object like any other, with itself in it."""

    def __init__(self, scores: Any) -> None:
        self.scores = scores
        self.me = self


def _rows(scores: torch.Tensor) -> Any:
    made = Rows([scores, scores.mean()])
    made.total = scores.sum()
    return made


def _with_attribute(scores: torch.Tensor) -> Any:
    made = Prediction(scores=scores)
    made.kept = scores.max()  # an attribute that is no entry
    made["last"] = scores.min()
    return made


MAKERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "entries and attributes": lambda s: Prediction(scores=s, number=s.sum().item()),
    "an attribute more": _with_attribute,
    "attributes as entries": lambda s: DotDict(b=s, a=s.mean()),
    "entries as attributes": lambda s: AttrDict(b=s, a=1),
    "closed": lambda s: _closed(b=s, a=[s.mean()]),
    "list": _rows,
    "defaultdict": lambda s: Counts(list, a=[s]),
    "deque": lambda s: Last([s, s.mean(), s.max()], maxlen=2),
    "no dict": lambda s: Mapped(scores=s),
    "nested": lambda s: [{"a": DotDict(inner=Prediction(scores=s), rows=_rows(s))}, (AttrDict(b=s),)],
    "in an object": lambda s: Record(DotDict(scores=s), [Slots(s.mean())]),
    "without values": lambda s: DotDict(a=1, b="text"),
    "slots": lambda s: Slots(s),
    "object": lambda s: Plain(s),
}


def told(value: Any, *, keeps_all: bool = True) -> Any:
    """A value with the names of its classes, the order of its entries and, if it keeps all, attributes of containers."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if value is None or type(value) in (int, float, str):
        return value
    name = type(value).__name__
    own = getattr(value, "__dict__", {})
    attributes = {} if own is value else {key: one for key, one in own.items() if one is not value}
    attributes |= {key: getattr(value, key) for key in getattr(type(value), "__slots__", ()) if key != "__weakref__"}
    held = {key: told(one, keeps_all=keeps_all) for key, one in attributes.items()}
    if isinstance(value, dict):
        entries = [[key, told(one, keeps_all=keeps_all)] for key, one in value.items()]
        return [name, entries, [held, str(getattr(value, "default_factory", ""))] if keeps_all else None]
    if isinstance(value, list | tuple | deque):
        elements = [told(one, keeps_all=keeps_all) for one in value]
        return [name, elements, [held, getattr(value, "maxlen", None)] if keeps_all else None]
    return [name, held, getattr(value, "me", None) is value]


def tensors_in(value: Any, seen: set[int]) -> list[torch.Tensor]:
    """All tensors in a value."""
    if isinstance(value, torch.Tensor):
        return [value]
    if id(value) in seen:
        return []
    seen.add(id(value))
    inner = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list | tuple | deque) else []
    inner += [*getattr(value, "__dict__", {}).values()]
    inner += [getattr(value, key) for key in getattr(type(value), "__slots__", ()) if key != "__weakref__"]
    return [tensor for one in inner for tensor in tensors_in(one, seen)]


@pytest.mark.parametrize("name", MAKERS)
def test_every_step_may_return_the_users_own_containers(name: str) -> None:
    make = MAKERS[name]

    def scenario(package: Package) -> Any:
        found: list[Any] = []

        def step(self: Any, batch: Any, batch_idx: int) -> Any:
            return make(self(batch[0]).view(-1))

        def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
            out = self(batch[0])
            return {"loss": out.square().mean(), "made": make(out.detach().view(-1))}

        def end(stage: str) -> Callable[..., None]:
            def noting(self: Any, outputs: Any, *_: Any) -> None:
                found.append([stage, told(outputs["made"] if stage == "train" else outputs)])

            return noting

        stages = ("train", "validation", "test", "predict")
        hooks = {f"on_{stage}_batch_end": end(stage) for stage in stages}
        steps = {f"{stage}_step": step for stage in stages[1:]}
        module, trainer = package.module(**hooks, **steps, training_step=training_step), package.trainer()
        generator = torch.Generator().manual_seed(0)
        data = torch.utils.data.TensorDataset(torch.randn(24, 4, generator=generator), torch.randn(24, 1, generator=generator))
        loader = torch.utils.data.DataLoader(data, batch_size=8)
        trainer.fit(module, loader, loader)
        trainer.test(module, loader, verbose=False)
        returned = trainer.predict(module, loader)
        kinds = {type(tensor) for tensor in tensors_in(returned, set())}
        # of what predict returns, Lightning's copy has lost the attributes of containers: ours keeps them
        assert package.kind == "lightning" or told(returned[-1]) == found[-1][1]
        return [found, told(returned, keeps_all=False), [kind.__name__ for kind in kinds]]

    require_same(scenario)


def test_what_a_step_keeps_in_an_attribute() -> None:
    def scenario(package: Package) -> Any:
        found: list[Any] = []

        def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
            loss = self(batch[0]).square().mean()
            self.kept = [DotDict(loss=loss.detach(), rows=_rows(batch[0][0]))]
            self.last = self.kept[0]
            return loss

        def on_train_batch_end(self: Any, *_: Any) -> None:
            found.append([told(self.kept), self.last is self.kept[0]])

        module = package.module(training_step=training_step, on_train_batch_end=on_train_batch_end)
        trainer = package.trainer()
        data = torch.utils.data.TensorDataset(torch.arange(96.0).view(24, 4) / 96, torch.zeros(24, 1))
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4))
        if package.kind == "compiled":
            assert len(trainer.compiles) <= 3, [one.reason for one in trainer.compiles]
        return found

    require_same(scenario)
