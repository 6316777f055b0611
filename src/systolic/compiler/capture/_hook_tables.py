"""Hooks that a step registers or removes while it is traced: on modules, optimizers, and gradients of tensors."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ...utilities._torch_internals import FunctionalTensor
from .._errors import CaptureError

Table = dict[int, Callable[..., Any]]

RUN_IN_STEPS = frozenset(
    {
        "_forward_hooks",
        "_forward_pre_hooks",
        "_backward_hooks",
        "_backward_pre_hooks",
        "_optimizer_step_pre_hooks",
        "_optimizer_step_post_hooks",
    }
)
"""The tables whose hooks a step may run; others serve `state_dict`, or tell how a hook in one of these is called."""

_OF_MODULES = tuple(name for name, value in vars(nn.Module()).items() if "hooks" in name and isinstance(value, dict))
_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@functools.cache
def _of_optimizers() -> tuple[str, ...]:
    # not when this module is imported: the first optimizer that is made imports Dynamo, which takes as long as JAX
    return tuple(name for name in vars(torch.optim.SGD([torch.zeros(1)])) if "hooks" in name)


def hook_tables(owner: nn.Module | torch.optim.Optimizer | torch.Tensor) -> Iterator[tuple[str, Table]]:
    """The tables of hooks that a module, an optimizer or a tensor has, by attribute."""
    if isinstance(owner, torch.Tensor):
        names: tuple[str, ...] = _OF_TENSORS
    else:
        names = _OF_MODULES if isinstance(owner, nn.Module) else _of_optimizers()
    for name in names:
        table = getattr(owner, name, None)
        if table is not None:
            yield name, table


def share_hooks(tensor: torch.Tensor, stand_in: torch.Tensor) -> None:
    """Give a stand-in the tensor's own tables, so that a handle which user code holds works on both."""
    for name, table in hook_tables(tensor):
        setattr(stand_in, name, table)


@dataclass(frozen=True)
class HookEffect:
    """Hooks that were registered or removed.

    Attributes:
        table: where they are.
        contents: what the step left there.
        tensor: the tensor that had no such table before the step, if there is one.
        attribute: the attribute of that tensor.
    """

    table: Table
    contents: tuple[tuple[int, Callable[..., Any]], ...]
    tensor: torch.Tensor | None = None
    attribute: str = ""

    def apply(self, fill: object) -> None:
        """Carry it out."""
        self.table.clear()
        self.table.update(self.contents)
        if self.tensor is not None:
            setattr(self.tensor, self.attribute, self.table)
        RemovableHandle.next_id += 1  # as a registration does; guards look at hooks only when this number has changed


def hook_effects(
    tables: list[Table], before: list[Table], tensors: Iterable[torch.Tensor], stand_ins: list[torch.Tensor]
) -> Iterator[HookEffect]:
    """Effects of a step on hooks.

    Args:
        tables: the tables that were there.
        before: what stood in them.
        tensors: those of the state.
        stand_ins: what the step was given for them.

    Raises:
        CaptureError: a hook that stays holds a tensor of the trace.
    """
    for table, old in zip(tables, before, strict=True):
        if list(table.items()) != list(old.items()):
            yield HookEffect(table, _lasting(table, old))
    for tensor, stand_in in zip(tensors, stand_ins, strict=True):
        had = dict(hook_tables(tensor))
        for name, table in hook_tables(stand_in):
            if name not in had:
                yield HookEffect(table, _lasting(table, {}), tensor, name)


def _lasting(table: Table, old: Table) -> tuple[tuple[int, Callable[..., Any]], ...]:
    for number, hook in table.items():
        if number not in old and any(isinstance(value, FunctionalTensor) for value in _held(hook)):
            raise CaptureError(
                f"The step registers the hook {getattr(hook, '__qualname__', hook)}{_place(hook)}, which holds a tensor that "
                "the step has computed. The hook stays, and that tensor has no value outside of the step.\n"
                "Options: let the hook read an attribute of the module; or remove the hook in the step that registers it."
            )
    return tuple(table.items())


def _held(hook: object) -> Iterator[Any]:
    """Objects that a function keeps: its closure, its defaults, the arguments of a partial."""
    for cell in getattr(hook, "__closure__", None) or ():
        if cell != types.CellType():  # a variable that has no value yet
            yield cell.cell_contents
    yield from getattr(hook, "__defaults__", None) or ()
    yield from getattr(hook, "args", ())
    yield from getattr(hook, "keywords", {}).values()


def _place(hook: object) -> str:
    code = getattr(hook, "__code__", None)
    return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
