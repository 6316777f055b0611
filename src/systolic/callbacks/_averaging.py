"""An average of a module's tensors: how it moves on, and how its values and the module's change places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn

Tables = Iterable[dict[str, Any]]
Program = Callable[[], None]


class Average:
    """An `AveragedModel` beside the module that it is the average of.

    Args:
        model: the average; its own `update_parameters` asks for values on the host, and is not used.
        module: the module.
        jit: makes a function between steps a program; None where the average stays in the host's memory.
    """

    def __init__(self, model: AveragedModel, module: nn.Module, jit: Callable[[Program], Program] | None) -> None:
        parameters = _slots(part._parameters for part in module.modules())
        buffers = _slots(part._buffers for part in module.modules())
        self._slots = [*parameters, *buffers]
        self._current = self._tensors()
        averaged = [*model.module.parameters(), *model.module.buffers()]
        copied = 0 if model.use_buffers else len(buffers)
        compiled = jit if jit is not None else torch.no_grad()
        self._update = compiled(_updating(averaged, self._current, copied, model))
        self._swap = compiled(_swapping(averaged, self._current))
        self._copy = compiled(_copying(averaged, self._current))

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


def _updating(averaged: list[Tensor], current: list[Tensor], copied: int, model: AveragedModel) -> Callable[[], None]:
    """Make the function that moves an average on; of the last `copied` tensors it takes the newest value."""
    moving, count = len(averaged) - copied, model.n_averaged
    # named here, so that a capture watches the variables that they use
    one = model.avg_fn if model.avg_fn is not None else get_swa_avg_fn()
    many = model.multi_avg_fn

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


def _swapping(averaged: list[Tensor], current: list[Tensor]) -> Callable[[], None]:
    def swap() -> None:
        for mean, value in zip(averaged, current, strict=True):
            was = mean.clone()
            mean.copy_(value)
            value.copy_(was)

    return swap


def _copying(averaged: list[Tensor], current: list[Tensor]) -> Callable[[], None]:
    def copy() -> None:
        for mean, value in zip(averaged, current, strict=True):
            value.copy_(mean)

    return copy
