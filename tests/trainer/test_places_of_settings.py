"""Settings that change between steps, in every kind of place that Python has for them; equal to Lightning."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from beside_lightning import beside_lightning, plain
from torch import nn

T = torch.Tensor
Prepare = Callable[[Any], None]


def _keep(module: Any, settings: Any, scale: Callable[[Any, T], T], change: Callable[[Any], object]) -> None:
    """Let a module have settings, a function that scales its loss by them, and one that changes them."""
    module.settings = settings
    module.__dict__["scale"], module.__dict__["change"] = scale, change


def _halve(owner: Any, name: str = "k") -> None:
    setattr(owner, name, getattr(owner, name) * 0.5)


def _times_k(settings: Any, loss: T) -> T:
    return loss * settings.k


class Base:
    k: ClassVar[float] = 1.0
    mode: ClassVar[str] = "a"


class Settings(Base):
    size = 2


def in_the_base_of_a_class(module: Any) -> None:
    Base.k = 1.0
    _keep(module, Settings, _times_k, lambda _: _halve(Base))


def in_the_class_of_an_object(module: Any) -> None:
    Base.k = 1.0
    _keep(module, Settings(), _times_k, lambda settings: _halve(type(settings).__base__))


def a_text_in_the_class_of_an_object(module: Any) -> None:
    Base.mode = "a"

    def turn(settings: Any) -> None:
        Base.mode = "b" if settings.mode == "a" else "a"

    _keep(module, Settings(), lambda settings, loss: loss * (1.0 if settings.mode == "a" else 0.3), turn)


def another_class(module: Any) -> None:
    class Other:
        k = 0.3

    def turn(settings: Any) -> None:
        module.settings = Other if settings is Settings else Settings

    Base.k = 1.0
    _keep(module, Settings, _times_k, turn)


class Scale:
    def __init__(self) -> None:
        self.k, self.mode, self.factors, self.function = 1.0, "a", (1.0, 2.0), F.relu

    def scaled(self, loss: T) -> T:
        return loss * self.k

    def __call__(self, loss: T) -> T:
        return loss * self.k


def in_the_object_of_a_method(module: Any) -> None:
    scale = Scale()
    _keep(module, scale.scaled, lambda settings, loss: settings(loss), lambda _: _halve(scale))


def the_method_of_another_object(module: Any) -> None:
    def replace(settings: Any) -> None:
        scale = Scale()
        scale.k = settings.__self__.k * 0.5
        module.settings = scale.scaled

    _keep(module, Scale().scaled, lambda settings, loss: settings(loss), replace)


def in_an_object_that_is_called(module: Any) -> None:
    _keep(module, Scale(), lambda settings, loss: settings(loss), _halve)


def a_tuple_of_an_object(module: Any) -> None:
    def change(settings: Any) -> None:
        settings.factors = (settings.factors[0] * 0.5, 2.0)

    _keep(module, Scale(), lambda settings, loss: loss * settings.factors[0], change)


def a_function_of_an_object(module: Any) -> None:
    def turn(settings: Any) -> None:
        settings.function = torch.tanh if settings.function is F.relu else F.relu

    _keep(module, Scale(), lambda settings, loss: settings.function(loss), turn)


class Kinds:
    def __init__(self) -> None:
        self.dtype, self.layer, self.last, self.k = torch.float32, nn.ReLU, torch.ones(()), 1.0
        self.table: list[float] = []


def a_dtype_of_an_object(module: Any) -> None:
    def turn(settings: Any) -> None:
        settings.dtype = torch.float16 if settings.dtype is torch.float32 else torch.float32

    _keep(module, Kinds(), lambda settings, loss: loss * (1.0 if settings.dtype is torch.float32 else 0.3), turn)


def a_dtype_of_a_copy(module: Any) -> None:
    a_dtype_of_an_object(module)
    module.__dict__["scale"] = lambda settings, loss: loss * (1.0 if copy.copy(settings).dtype is torch.float32 else 0.3)


def a_class_of_an_object(module: Any) -> None:
    def turn(settings: Any) -> None:
        settings.layer = nn.Tanh if settings.layer is nn.ReLU else nn.ReLU

    _keep(module, Kinds(), lambda settings, loss: settings.layer()(loss), turn)


def a_tensor_of_an_object_or_none(module: Any) -> None:
    def turn(settings: Any) -> None:
        settings.last = torch.ones(()) if settings.last is None else None

    _keep(module, Kinds(), lambda settings, loss: loss * (0.3 if settings.last is None else 1.0), turn)


def another_object_with_another_class(module: Any) -> None:
    def replace(settings: Any) -> None:
        other = Kinds()
        other.layer = nn.Tanh if settings.layer is nn.ReLU else nn.ReLU
        module.settings = other

    _keep(module, Kinds(), lambda settings, loss: settings.layer()(loss), replace)


def another_object_with_other_data(module: Any) -> None:
    def replace(settings: Any) -> None:
        other = Kinds()
        other.table = [settings.table[0] * 0.5] * 2_000
        module.settings = other

    first = Kinds()
    first.table = [1.0] * 2_000
    _keep(module, first, lambda settings, loss: loss * settings.table[0], replace)


def _slope(settings: Any, loss: T) -> T:
    return settings(-loss).neg()


def in_keywords_of_a_partial(module: Any) -> None:
    def change(settings: Any) -> None:
        settings.keywords["negative_slope"] *= 1.5

    _keep(module, functools.partial(F.leaky_relu, negative_slope=0.1), _slope, change)


def another_partial(module: Any) -> None:
    def replace(settings: Any) -> None:
        module.settings = functools.partial(F.leaky_relu, negative_slope=settings.keywords["negative_slope"] * 1.5)

    _keep(module, functools.partial(F.leaky_relu, negative_slope=0.1), _slope, replace)


def an_object_in_a_partial(module: Any) -> None:
    scale = Scale()
    _keep(module, functools.partial(_times_k, scale), lambda settings, loss: settings(loss), lambda _: _halve(scale))


def a_tensor_in_a_partial(module: Any) -> None:
    k = torch.ones(())
    _keep(module, functools.partial(torch.mul, k), lambda settings, loss: settings(loss), lambda _: k.mul_(0.5))


@dataclasses.dataclass(slots=True)
class Slotted:
    k: float = 1.0
    table: dict[str, float] = dataclasses.field(default_factory=lambda: {"k": 1.0})


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    k: float = 1.0


class OfSlots:
    __slots__ = ("k", "table")

    def __init__(self) -> None:
        self.k, self.table = 1.0, {"k": 1.0}


class OfSlotsAndMore(OfSlots):
    def __init__(self) -> None:
        super().__init__()
        self.k, self.more = 1.0, 1.0


def in_a_dataclass_with_slots(module: Any) -> None:
    _keep(module, Slotted(), _times_k, _halve)


def another_frozen_dataclass_with_slots(module: Any) -> None:
    def replace(settings: Any) -> None:
        module.settings = dataclasses.replace(settings, k=settings.k * 0.5)

    _keep(module, Frozen(), _times_k, replace)


def in_slots(module: Any) -> None:
    _keep(module, OfSlots(), _times_k, _halve)


def in_slots_beside_others(module: Any) -> None:
    _keep(module, OfSlotsAndMore(), lambda settings, loss: loss * settings.k * settings.more, _halve)


def in_a_dict_in_slots(module: Any) -> None:
    def change(settings: Any) -> None:
        settings.table["k"] *= 0.5

    _keep(module, OfSlots(), lambda settings, loss: loss * settings.table["k"], change)


class Entries(dict[str, Any]):
    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        self.k = 1.0


class Same(dict[str, Any]):
    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        self.__dict__ = self


class Looked:
    def __init__(self) -> None:
        self.__dict__["_table"] = {"k": 1.0}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_table"][name]
        except KeyError:
            raise AttributeError(name) from None


def an_attribute_of_a_dict(module: Any) -> None:
    _keep(module, Entries(size=2), _times_k, _halve)


def entries_that_are_attributes(module: Any) -> None:
    _keep(module, Same(k=1.0), _times_k, _halve)


def attributes_that_are_looked_up(module: Any) -> None:
    def change(settings: Any) -> None:
        settings._table["k"] *= 0.5

    _keep(module, Looked(), _times_k, change)


def _unchanged(loss: T) -> T:
    return loss


def _halved(loss: T) -> T:
    return loss * 0.5


_function: Callable[[T], T] = _unchanged
_builtin: Callable[[T], T] = torch.relu
_partial: Callable[[T], T] = functools.partial(torch.mul, other=torch.tensor(0.5))


def a_global_function(module: Any) -> None:
    def turn(_: Any) -> None:
        global _function
        _function = _halved if _function is _unchanged else _unchanged

    globals()["_function"] = _unchanged
    _keep(module, None, lambda _, loss: _function(loss), turn)


def a_global_function_in_c(module: Any) -> None:
    def turn(_: Any) -> None:
        global _builtin
        _builtin = torch.tanh if _builtin is torch.relu else torch.relu

    globals()["_builtin"] = torch.relu
    _keep(module, None, lambda _, loss: _builtin(loss), turn)


def a_global_partial(module: Any) -> None:
    def turn(_: Any) -> None:
        global _partial
        _partial = functools.partial(torch.mul, other=torch.tensor(0.7))

    globals()["_partial"] = functools.partial(torch.mul, other=torch.tensor(0.5))
    _keep(module, None, lambda _, loss: _partial(loss), turn)


_method: Callable[[T], T] = Scale().scaled


def a_global_method(module: Any) -> None:
    def turn(_: Any) -> None:
        global _method
        other = Scale()
        other.k = 0.3
        _method = other.scaled

    globals()["_method"] = Scale().scaled
    _keep(module, None, lambda _, loss: _method(loss), turn)


def in_the_object_of_a_global_method(module: Any) -> None:
    globals()["_method"] = Scale().scaled
    _keep(module, None, lambda _, loss: _method(loss), lambda _: _halve(_method.__self__))  # type: ignore[attr-defined]


_KINDS: list[Prepare] = [
    in_the_base_of_a_class, in_the_class_of_an_object, a_text_in_the_class_of_an_object, another_class,
    in_the_object_of_a_method, the_method_of_another_object, in_an_object_that_is_called, a_tuple_of_an_object,
    a_dtype_of_an_object, a_dtype_of_a_copy, a_class_of_an_object, a_tensor_of_an_object_or_none,
    another_object_with_another_class, another_object_with_other_data, a_function_of_an_object, in_keywords_of_a_partial, another_partial, an_object_in_a_partial, a_tensor_in_a_partial,
    in_a_dataclass_with_slots, another_frozen_dataclass_with_slots, in_slots, in_slots_beside_others, in_a_dict_in_slots,
    an_attribute_of_a_dict, entries_that_are_attributes, attributes_that_are_looked_up, a_global_function,
    a_global_function_in_c, a_global_partial, a_global_method, in_the_object_of_a_global_method,
]  # fmt: skip


def _step(module: Any, batch: Any, i: int) -> T:
    return module.scale(module.settings, module.loss(batch))


def _between(module: Any, *_: Any) -> None:
    module.change(module.settings)


@pytest.mark.thin(6)
@pytest.mark.parametrize("hook", ["on_train_epoch_end", "on_train_batch_end"])
@pytest.mark.parametrize("prepare", _KINDS)
def test_a_change_is_noticed(prepare: Prepare, hook: str) -> None:
    methods = {"training_step": _step, hook: _between}
    beside_lightning(methods, lambda module: plain(module.state_dict()), prepare=prepare, epochs=3, advice=False)


@pytest.mark.parametrize("prepare", [in_the_class_of_an_object, in_the_object_of_a_method, in_slots])
def test_on_four_cores(prepare: Prepare) -> None:
    methods = {"training_step": _step, "on_train_epoch_end": _between}
    beside_lightning(methods, lambda module: plain(module.state_dict()), prepare=prepare, devices=4)
