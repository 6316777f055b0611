"""A torch.Tensor whose value lives on the devices (contract C4)."""

from __future__ import annotations

import contextlib
import copy
import gc
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, SupportsIndex, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.overrides import handle_torch_function

from ..utilities._torch_internals import (
    disabled_torch_function,
    function_modes_see,
    plain_data,
    swap_tensors_below,
    tree_map_only,
)
from ._cells import Cell, ViewCell, flush, kept_value

aten = torch.ops.aten


class DeviceTensor(torch.Tensor):
    """A tensor that systolic keeps on the devices.

    Reading it fetches the current value, and waits for it; writing it in place changes what the next step uses.
    Looking at its shape, dtype or `requires_grad` costs nothing. Saving or copying it gives an ordinary CPU tensor.
    """

    _cell: Cell | ViewCell
    # PyTorch's default makes a result of an op one of the operand's class: a DeviceTensor without a cell
    __torch_function__ = disabled_torch_function  # pyright: ignore[reportAssignmentType]

    @staticmethod
    def __new__(cls, cell: Cell | ViewCell, *, requires_grad: bool = False) -> DeviceTensor:
        """Wrap a cell; the tensor reports `device="cpu"`, where its value appears when somebody looks."""
        # the user may be in `torch.inference_mode`: a view of a weight is an ordinary tensor there, too
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else contextlib.nullcontext():
            self = torch.Tensor._make_wrapper_subclass(cls, cell.shape, dtype=cell.dtype, requires_grad=requires_grad)
        self._cell = cell
        return cast(DeviceTensor, self)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an eager op on the host copies; writes go back to the device before the next step."""
        if func is aten.detach.default:
            return _sharing(args[0])
        kwargs = kwargs or {}
        host_args, host_kwargs = tree_map_only(DeviceTensor, lambda t: t._cell.host(), (args, kwargs))
        result = func(*host_args, **host_kwargs)
        aliased = [(a, t) for a, v in _bound(func, args, kwargs) if a.alias_info for t in _device_tensors(v)]
        written = [value for argument, value in aliased if argument.alias_info.is_write]
        for tensor in written:
            tensor._cell.mark_written()
        if written:
            # in-place ops on lists return nothing, ops with several `out` arguments return all of them
            returned = len(func._schema.returns)
            return written[0] if returned == 1 else tuple(written) if returned == len(written) else result
        if aliased and aliased[0][1] is args[0]:
            return _view_of(args[0]._cell, lambda host: func(host, *args[1:], **kwargs), result)
        return result

    @property
    def data(self) -> torch.Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The same value without gradient history; assigning to it changes what the next step uses."""
        return get_data(self)

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        set_data(self, value)

    def look_at(self, kept: ViewCell) -> None:
        """Have another value from now on, which is no tensor's of the state."""
        self._cell = kept

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """The current value, read-only: a write through NumPy could not be noticed."""
        if self.requires_grad and not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        values = self._cell.host().numpy(force=True)
        values.flags.writeable = False
        return values

    def __array__(self, dtype: npt.DTypeLike | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._cell.host().numpy(force=True), dtype=dtype)

    def tolist(self) -> Any:
        """The current value as nested Python lists."""
        return self._cell.host().tolist()

    def cpu(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The current value as an ordinary tensor that later steps do not change."""
        return self._cell.host().clone()

    def __repr__(self, *, tensor_contents: object = None) -> str:
        grad = ", requires_grad=True" if self.requires_grad else ""
        text = repr(self._cell.host())
        text = text[:-1] + grad + ")" if text.endswith(")") else text
        return f"Parameter containing:\n{text}" if isinstance(self, torch.nn.Parameter) else text

    def __format__(self, spec: str) -> str:
        return format(self._cell.host(), spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        if id(self) not in memo:
            memo[id(self)] = to_plain(self)
        return memo[id(self)]

    def __copy__(self) -> torch.Tensor:
        return to_plain(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        if not isinstance(self._cell, Cell):
            return to_plain(self).__reduce_ex__(protocol)
        # the host copy itself: a value that occurs under two names (tied weights) is then written once
        return _as_kind_of(self, self._cell.host()).__reduce_ex__(protocol)


def get_data(tensor: torch.Tensor) -> torch.Tensor:
    """Value of `tensor.data`."""
    if not isinstance(tensor, DeviceTensor):
        return tensor.data
    # Python code of a subclass goes past PyTorch's function modes, and a step is traced under one
    return handle_torch_function(get_data, (tensor,), tensor) if in_function_mode() else _sharing(tensor)


def _sharing(tensor: DeviceTensor) -> DeviceTensor:
    """Another tensor over the same memory."""
    alias = DeviceTensor(tensor._cell)
    if isinstance(tensor._cell, Cell):
        tensor._cell.shared_with(alias)
    return alias


def set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Carry out `tensor.data = value`."""
    if not isinstance(tensor, DeviceTensor):
        tensor.data = value
        return
    if in_function_mode():
        handle_torch_function(set_data, (tensor,), tensor, value)
        return
    if value.shape != tensor.shape:
        raise ValueError(
            f"A tensor on the devices keeps its shape: expected {tuple(tensor.shape)}, received {tuple(value.shape)}. "
            "Assign a new nn.Parameter to the module to change the shape."
        )
    cell = tensor._cell
    if isinstance(cell, ViewCell) or cell.is_shared_by(tensor):  # only this object gets other memory, as in PyTorch
        tensor.look_at(kept_value(value))
        return
    value = value.detach()
    cell.part()  # the value as well, where it looks at this memory
    cell.host().copy_(value)
    cell.mark_written()


def _assign_plain_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    if isinstance(value, DeviceTensor) and not in_function_mode():
        value = value._cell.host().clone()  # host sync: an ordinary tensor takes the value
    plain_data.__set__(tensor, value)


def let_plain_tensors_take_values() -> None:
    """From now on `plain.data = weight.data` copies the value.

    PyTorch would let the ordinary tensor be one over the wrapper's memory, of which there is none, and crash the process at
    its next use (`p.data, averaged.data = averaged.data, p.data`, with which averages are swapped in).
    """
    if "data" not in vars(torch.Tensor):
        torch.Tensor.data = property(plain_data.__get__, _assign_plain_data)  # pyright: ignore[reportAttributeAccessIssue]


def in_function_mode() -> bool:
    """Whether a mode sees every function called on tensors; not where PyTorch, or we, have switched modes off for a while."""
    return function_modes_see()


def _view_of(cell: Cell | ViewCell, view: Callable[[torch.Tensor], Any], result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return DeviceTensor(ViewCell(cell, view))
    return type(result)(DeviceTensor(ViewCell(cell, _nth(view, i))) for i in range(len(result)))


def _nth(view: Callable[[torch.Tensor], Any], index: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda host: view(host)[index]


def _device_tensors(value: object) -> list[DeviceTensor]:
    """The value, or those in it: `torch._foreach_add_` and its like write to lists of tensors."""
    return [v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, DeviceTensor)]


def _bound(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    arguments = func._schema.arguments
    pairs = list(zip(arguments, args, strict=False))
    pairs += [(a, kwargs[a.name]) for a in arguments if a.name in kwargs]
    return pairs


def to_plain(tensor: DeviceTensor) -> torch.Tensor:
    """An ordinary CPU copy: a Parameter where the tensor is one, with its `requires_grad`."""
    return _as_kind_of(tensor, tensor._cell.host().clone())  # host sync: the value is wanted


def _as_kind_of(tensor: DeviceTensor, value: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(value, requires_grad=tensor.requires_grad)
    return value.detach().requires_grad_(tensor.requires_grad)


def move_in_place(tensor: torch.Tensor, cell: Cell) -> None:
    """Turn an ordinary tensor object into a DeviceTensor, so that every reference to it sees the devices' value."""
    replacement = DeviceTensor.__new__(DeviceTensor, cell, requires_grad=tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        replacement._is_param = True  # pyright: ignore[reportAttributeAccessIssue]
    _swap(tensor, replacement)


_brought_back = 0


def tensors_returned() -> int:
    """A number that is another one when a tensor has left the devices meanwhile: a program may know where it lay."""
    return _brought_back


def bring_back(tensor: DeviceTensor) -> None:
    """Turn a DeviceTensor object into an ordinary CPU tensor that holds the current value."""
    global _brought_back  # noqa: PLW0603  # whoever ends a run tells all engines of the process
    _brought_back += 1
    plain = to_plain(tensor)
    if isinstance(tensor._cell, Cell):
        tensor._cell.forget(tensor)
    _swap(tensor, plain)


def _uses(tensor: Any) -> int:
    return tensor._use_count()


def _exchange_attributes(a: object, b: object) -> None:
    a.__dict__, b.__dict__ = b.__dict__, a.__dict__


def _is_held_by_a_graph(tensor: torch.Tensor) -> bool:
    """Whether besides its object only graphs of user code's refer to a parameter (`p.clone()`, or an output, that was kept).

    These can then no longer go backward: the gradient would be of the old value, and go to the new one. PyTorch's swap does
    the same.
    """
    uses = _uses(tensor)
    if uses < 2 or not (tensor.is_leaf and tensor.requires_grad):
        return False
    node = torch.autograd.graph.get_gradient_edge(tensor).node
    if _uses(tensor) != uses:  # the node was made by the question
        return False
    if uses > 2 and _is_viewed(tensor):  # else operations have saved it
        return False
    node.register_prehook(_refuse_old_graph)
    return True


def _is_viewed(tensor: torch.Tensor) -> bool:
    """Whether somebody holds a view of a tensor, which would go on showing the old value.

    A view that only a graph has saved has no referrer.
    """
    views = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor) and one._base is tensor]
    if not views:
        return False
    in_frames: set[int] = set()
    for top in sys._current_frames().values():
        frame = top.f_back if top is sys._getframe() else top
        while frame is not None:
            in_frames.update(map(id, frame.f_locals.values()))
            frame = frame.f_back
    # `views` is one referrer; a generator expression would be another
    return [one for one in views if id(one) in in_frames or len(gc.get_referrers(one)) > 1] != []


def _refuse_old_graph(gradients: object) -> NoReturn:
    raise RuntimeError(
        "backward() reached a parameter through what was computed of it before a step: its value has moved since. Compute the "
        "loss after the step, or detach what is kept (`p.detach().clone()`)."
    )


def _swap(tensor: torch.Tensor, replacement: torch.Tensor) -> None:
    # a swap takes the gradient along with the old memory, to an object that nobody keeps
    grad, tensor.grad = tensor.grad, None
    refers = bool(weakref.getweakrefs(tensor))
    if (refers and _uses(tensor) == 1) or ((refers or _uses(tensor) > 2) and _is_held_by_a_graph(tensor)):
        # PyTorch declines here, because a weak reference does not move along. It shall not: the object stays the same
        # (recurrent modules refer weakly to their weights)
        tensor.__class__, replacement.__class__ = replacement.__class__, tensor.__class__
        _exchange_attributes(tensor, replacement)
        swap_tensors_below(tensor, replacement)
    else:
        torch.utils.swap_tensors(tensor, replacement)
    tensor.grad = None if grad is None else copy.copy(grad)


def wait_for(value: object) -> None:
    """Wait until the devices have computed a DeviceTensor; other values are there already."""
    if isinstance(value, DeviceTensor) and isinstance(value._cell, Cell):
        value._cell.buffer.array.block_until_ready()


def send_changes(tensor: DeviceTensor) -> None:
    """Send what was written to a tensor's host copy to the devices, and forget that copy."""
    if isinstance(tensor._cell, Cell):
        flush(tensor._cell.buffer)


def replace_value(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Turn a tensor object of any device, meta too, into an ordinary CPU tensor with another value; the old one is not read."""
    plain = torch.nn.Parameter(value) if isinstance(tensor, torch.nn.Parameter) else value
    _swap(tensor, plain.requires_grad_(tensor.requires_grad))
