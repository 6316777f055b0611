"""Tensors that user code reaches by a way which the object graph does not know: a closure, a plain object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...utilities._leaves import is_sparse
from ...utilities._torch_internals import (
    FUNCTIONAL_MODE,
    FakeTensor,
    FunctionalTensor,
    apply_pending_writes,
    get_dispatch_mode,
    has_data_mutation,
    is_functional_tensor,
    is_functorch_tensor,
    tree_map_only,
)
from .._errors import CaptureError, user_line_of
from ._made_tensors import MAKING, indexed
from ._memory_writes import assign_data, sets_data, traced_set
from ._size_arguments import range_as_long_as_ever, range_of_reals, split_by_values, with_sizes
from ._size_reads import SizeReads
from ._sparse_functions import TO_SPARSE
from ._sparse_tensors import SparseTensor, elements_of

_SINGLE = (torch.Tensor, int, float, str, type(None), torch.dtype)
"""Types of arguments that hold no tensors within."""


class ClosedOverTensors(TorchFunctionMode):
    """While the user's code is traced, use a stand-in for every ordinary tensor: the state's own, or a constant's.

    Attributes:
        active: whether the user's code is running.
        lines: by id of a stand-in: the line that gave it other memory, or another shape, last.
        sizes: which sizes the user's code computes with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.active = False
        self.lines: dict[int, str] = {}
        self.sizes = SizeReads()
        self._stand_ins: dict[int, torch.Tensor] = {}
        self._state: set[int] = set()
        self._sparse: dict[int, tuple[torch.Tensor, SparseTensor]] = {}
        self._constants: dict[int, tuple[torch.Tensor, FunctionalTensor]] = {}

    def know(self, stand_ins: dict[int, torch.Tensor]) -> None:
        """Take the stand-ins of the state, by id of a state tensor."""
        self._stand_ins = stand_ins
        self._state = {id(stand_in) for stand_in in stand_ins.values()}

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function with stand-ins."""
        kwargs = kwargs or {}
        if not self.active:
            return func(*args, **kwargs)
        args = indexed(func, args)
        if kwargs or not all(isinstance(one, _SINGLE) for one in args):
            args, kwargs = tree_map_only(torch.Tensor, self._stand_in, (args, kwargs))
        else:  # most calls by far only ask for an attribute, and to look for containers takes longer than the answer
            args = tuple([self._stand_in(one) if isinstance(one, torch.Tensor) else one for one in args])
        if (numbers := range_of_reals(func, args, kwargs)) is not None:
            return numbers
        if (numbers := range_as_long_as_ever(func, args, kwargs)) is not None:
            return numbers
        if func in TO_SPARSE and not (args and isinstance(args[0], SparseTensor)):
            return TO_SPARSE[func](*args, **kwargs)
        args, kwargs = with_sizes(func, args, kwargs)
        if (parts := split_by_values(func, args, kwargs)) is not None:
            return parts
        func = MAKING.get(func, func)  # by whatever name the user's module imported it
        if sets_data(func):
            return self._set_data(*args)
        if not (args and id(args[0]) in self._state):
            return self.sizes.seen_by(func, args, func(*args, **kwargs))
        shape = args[0].shape
        result = func(*args, **kwargs)
        if func is traced_set or args[0].shape != shape:
            self.lines[id(args[0])] = user_line_of()
        return result

    def _set_data(self, target: torch.Tensor, value: object) -> None:
        if any(target is stand_in for _, stand_in in self._constants.values()):
            raise _lost(target, f"\n  used at {user_line_of()}\n")
        assign_data(target, value)
        self.lines[id(target)] = user_line_of()

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        # torch.func's own tensors (a level of vmap or grad) hold one of the trace's
        if isinstance(tensor, (FunctionalTensor, FakeTensor)) or is_functorch_tensor(tensor):
            return tensor
        if id(tensor) in self._stand_ins:
            return self._stand_ins[id(tensor)]
        if isinstance(tensor, SparseTensor):
            return tensor
        if is_sparse(tensor):
            return self._sparse_stand_in(tensor)
        if is_functional_tensor(tensor) or get_dispatch_mode(FUNCTIONAL_MODE) is None:
            return tensor  # the tracer's own work on its tensors
        if id(tensor) not in self._constants:
            self._constants[id(tensor)] = (tensor, FunctionalTensor.to_functional(tensor.detach()))
        return self._constants[id(tensor)][1]

    def _sparse_stand_in(self, tensor: torch.Tensor) -> SparseTensor:
        if id(tensor) not in self._sparse:
            own = elements_of(tensor)
            indices, values = self._stand_in(own.indices), self._stand_in(own.values)
            self._sparse[id(tensor)] = (tensor, replace(own, indices=indices, values=values).tensor())
        return self._sparse[id(tensor)][1]

    def met(self) -> Iterator[torch.Tensor]:
        """The tensors that the step reached by a way which the object graph does not know."""
        return (tensor for tensor, _ in self._constants.values())

    def require_unchanged(self) -> None:
        """Raise when the step wrote to a tensor that belongs to none of the objects it was given."""
        for tensor, stand_in in self._constants.values():
            apply_pending_writes(stand_in)
            if has_data_mutation(stand_in.elem):
                raise _lost(tensor, " ")


def _lost(tensor: torch.Tensor, where: str) -> CaptureError:
    return CaptureError(
        f"The step changes a tensor of shape {tuple(tensor.shape)} in place that is not part of its modules "
        f"or optimizers, so the change would be lost.{where}Register the tensor as a buffer of the module, or "
        "return the new value."
    )
