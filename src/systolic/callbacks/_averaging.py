"""An average of a module's tensors: how it moves on, and how its values and the module's change places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn

Tables = Iterable[dict[str, Any]]
Program = Callable[[], None]
Jit = Callable[[Program, tuple[list[Tensor], list[Tensor]]], Program]
AverageOne = Callable[[Tensor, Tensor, Any], Tensor]


@dataclass(frozen=True)
class Rule:
    """How an average moves on.

    Attributes:
        count: how many updates there were; a tensor that is counted up.
        one: from an average, the new value and the count to the new average.
        many: the same for lists, in place; where it is given it is used.
        copied: of so many tensors, the last ones, the newest value is taken.
    """

    count: Tensor
    one: AverageOne
    many: Callable[[Any, Any, Any], None] | None = None
    copied: int = 0


class Average:
    """Tensors beside those of the module that they are averages of.

    Args:
        averaged: the averages; first those of parameters.
        module: the module.
        buffers: whether there are averages of its buffers, too.
        rule: how they move on.
        jit: makes a function between steps a program; None where the averages stay in the host's memory.
    """

    def __init__(self, averaged: list[Tensor], module: nn.Module, buffers: bool, rule: Rule, jit: Jit | None) -> None:
        tables = [part._buffers for part in module.modules()] if buffers else []
        self._slots = _slots(part._parameters for part in module.modules()) + _slots(tables)
        self._current = self._tensors()
        moving = _updating(averaged, self._current, rule), _swapping(averaged, self._current), _copying(averaged, self._current)
        like = (averaged, self._current)  # of a divided parameter each device averages its part
        compiled = [torch.no_grad()(one) if jit is None else jit(one, like) for one in moving]
        self._update, self._swap, self._copy = compiled

    @classmethod
    def of_model(cls, model: AveragedModel, module: nn.Module, jit: Jit | None) -> Self:
        """Make the average that an `AveragedModel` holds; its own `update_parameters` asks for values on the host."""
        buffers = list(model.module.buffers())
        one = model.avg_fn if model.avg_fn is not None else get_swa_avg_fn()
        rule = Rule(model.n_averaged, one, model.multi_avg_fn, 0 if model.use_buffers else len(buffers))
        return cls([*model.module.parameters(), *buffers], module, True, rule, jit)

    def _tensors(self) -> list[Tensor]:
        return [table[name] for table, name in self._slots]

    def _look(self) -> None:
        """A step may have put another tensor into the module."""
        self._current[:] = self._tensors()

    def update(self) -> None:
        """Take the module's values into the average."""
        self._look()
        self._update()

    def swap(self) -> None:
        """Give the module the average's values, and the average the module's."""
        self._look()
        self._swap()

    def copy_to_module(self) -> None:
        """Give the module the average's values, too."""
        self._look()
        self._copy()


def _slots(tables: Tables) -> list[tuple[dict[str, Any], str]]:
    """Places of tensors in tables of parameters or buffers: one place each, in the order of `Module.parameters()`."""
    found: dict[int, tuple[dict[str, Any], str]] = {}
    for table in tables:
        for name, tensor in table.items():
            if tensor is not None:
                found.setdefault(id(tensor), (table, name))
    return list(found.values())


def _updating(averaged: list[Tensor], current: list[Tensor], rule: Rule) -> Program:
    moving = len(averaged) - rule.copied
    # named here, so that a capture watches the variables that they use
    count, one, many = rule.count, rule.one, rule.many

    def update() -> None:
        # a value of the devices: asked on the host it would make every step wait
        first = count == 0
        means, values = [t.detach() for t in averaged[:moving]], [t.detach() for t in current[:moving]]
        if many is None:
            moved = [one(mean, value, count) for mean, value in zip(means, values, strict=True)]
        else:
            moved = [mean.clone() for mean in means]
            for chosen in _by_dtype(means):
                many([moved[i] for i in chosen], [values[i] for i in chosen], count)
        for mean, value, new in zip(means, values, moved, strict=True):
            mean.copy_(torch.where(first, value.to(mean.dtype), new.to(mean.dtype)))
        for mean, value in zip(averaged[moving:], current[moving:], strict=True):
            mean.copy_(value)
        count.add_(1)

    return update


def _by_dtype(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Indices of the tensors of each dtype: functions for lists get one dtype at a time."""
    dtypes = dict.fromkeys(tensor.dtype for tensor in tensors)
    return [[i for i, tensor in enumerate(tensors) if tensor.dtype == dtype] for dtype in dtypes]


def _swapping(averaged: list[Tensor], current: list[Tensor]) -> Program:
    def swap() -> None:
        for mean, value in zip(averaged, current, strict=True):
            was = mean.clone()
            mean.copy_(value)
            value.copy_(was)

    return swap


def _copying(averaged: list[Tensor], current: list[Tensor]) -> Program:
    def copy() -> None:
        for mean, value in zip(averaged, current, strict=True):
            value.copy_(mean)

    return copy
