"""`torch.tensor([loss, 2.0])` in a step: a tensor that is made of values of the trace.

PyTorch reads the memory of every element, and there is none before the program runs. Here the elements are stacked, with the
dtype that PyTorch would have chosen.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...utilities._torch_internals import FunctionalTensor, is_functorch_tensor
from .._capture_thread import replaced
from ._host_result import HostResult
from ._numpy_numbers import dtype_of, is_numpy_symbol
from ._sparse_functions import MAKING_SPARSE
from ._traced_arrays import is_traced_array, stands_for_number


@contextlib.contextmanager
def tensors_of_values() -> Iterator[None]:
    """Inside the block, functions that make tensors take values of the trace, also in lists and tuples."""
    with contextlib.ExitStack() as stack:
        for original, making in {**MAKING, **MAKING_SPARSE}.items():
            stack.enter_context(replaced(torch, original.__name__, making))
        stack.enter_context(replaced(torch.Tensor, "new_tensor", _making_alike(torch.Tensor.new_tensor)))
        stack.enter_context(replaced(torch.Tensor, "__deepcopy__", _copying(torch.Tensor.__deepcopy__)))
        yield


def indexed(func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a function of PyTorch, with tensors in place of arrays of the trace where it takes places of a tensor.

    `Tensor.__getitem__` itself is not replaced: a class that once had one of its own is a sequence to Python from then on, and
    `torch.tensor` would ask the elements of a list for their lengths.
    """
    if func not in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
        return args
    tensor, places, *value = args
    listed = [_place(one) for one in places] if type(places) is tuple else [_place(places)]
    if any(map(_is_computed, listed)):
        tensor, listed = _selected(tensor, listed)
        return (tensor, tuple(listed), *map(_place, value))
    return (tensor, tuple(listed) if type(places) is tuple else listed[0], *map(_place, value))


def _is_computed(place: Any) -> bool:
    """Whether a place is one whole number that the program computes; Python's indexing would ask for its value."""
    if isinstance(place, torch.SymInt):
        return True
    return isinstance(place, torch.Tensor) and place.dim() == 0 and _is_whole_number(place)


def _is_whole_number(tensor: torch.Tensor) -> bool:
    """Whether a tensor has one element that Python takes for an index; under `vmap` it is one for each sample."""
    kinds = (torch.int64, torch.int32, torch.int16, torch.int8)
    return tensor.dtype in kinds and tensor.numel() == 1 and not is_functorch_tensor(tensor)


def _selected(tensor: torch.Tensor, places: list[Any]) -> tuple[torch.Tensor, list[Any]]:
    """A view of a tensor at the places that are computed, from the last one to the first; the other places."""
    taken = [0 if one is None or one is Ellipsis else _taken(one) for one in places]
    for at in [number for number, one in enumerate(places) if one is Ellipsis]:  # of which there may be one
        taken[at] = tensor.dim() - sum(taken)
    for number in reversed(range(len(places))):
        if _is_computed(places[number]):
            place = places.pop(number)
            index: Any = place.item() if isinstance(place, torch.Tensor) else place
            tensor = tensor.select(sum(taken[:number]), index)
    return tensor, places


def _taken(place: Any) -> int:
    """How many dimensions a place is of: a mask has several, a single truth value none."""
    if isinstance(place, bool):
        return 0
    return place.dim() if isinstance(place, torch.Tensor) and place.dtype in (torch.bool, torch.uint8) else 1


def _bound(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) and _is_whole_number(value) else value


def _place(value: Any) -> Any:
    if isinstance(value, slice):  # of a tensor as a bound, Python's indexing would ask for the value
        bounds: Any = value
        return slice(_bound(bounds.start), _bound(bounds.stop), _bound(bounds.step))
    if is_traced_array(value):
        return value.tensor
    is_list = isinstance(value, list) and any(map(is_traced_array, value))
    return torch.stack([torch.as_tensor(one) for one in value]) if is_list else value


def _making(original: Callable[..., Any], *, copies: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(data: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, HostResult):
            data.refuse()
        if not _holds_values(data):
            return original(data, *args, **kwargs)
        asked = args[0] if args else kwargs.get("dtype")
        tensor = _stacked(data, asked or functools.reduce(torch.promote_types, map(_dtype, _leaves(data))))
        tensor = torch.as_tensor(tensor, *args, **{key: kwargs[key] for key in ("dtype", "device") if key in kwargs})
        tensor = tensor.clone() if copies else tensor
        return tensor.requires_grad_() if kwargs.get("requires_grad") else tensor

    return make


def _making_alike(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(self: torch.Tensor, data: Any, *args: Any, **kwargs: Any) -> Any:
        if not _holds_values(data):
            return original(self, data, *args, **kwargs)
        return torch.tensor(data, **{"dtype": self.dtype, "device": self.device} | kwargs)

    return make


def _copying(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def deepcopy(self: torch.Tensor, memo: dict[int, Any]) -> Any:
        if not (isinstance(self, FunctionalTensor) and self.is_leaf) or id(self) in memo:
            return original(self, memo)
        memo[id(self)] = made = self.detach().clone().requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            made._is_param = True  # pyright: ignore[reportAttributeAccessIssue]
        return made

    return deepcopy


MAKING: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.tensor: _making(torch.tensor, copies=True),
    **{function: _making(function, copies=False) for function in (torch.as_tensor, torch.asarray, torch.from_numpy)},
}
"""By function of PyTorch that makes a tensor: the one that takes values of the trace, too.

In its module for what PyTorch's own Python calls, where function modes are off; in the function mode for every other name.
"""


def _leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, list | tuple):
        for one in data:
            yield from _leaves(one)
    else:
        yield data


def _holds_values(data: object) -> bool:
    """Whether a list, tuple or number holds values of the trace. PyTorch itself makes a tensor of a tensor."""
    kinds = torch.Tensor | torch.SymFloat | torch.SymInt
    return not isinstance(data, torch.Tensor) and any(isinstance(x, kinds) or is_traced_array(x) for x in _leaves(data))


def _dtype(leaf: Any) -> torch.dtype:
    """The dtype that PyTorch takes for an element, where it was not asked for another one."""
    if is_numpy_symbol(leaf):
        return dtype_of(leaf)
    if isinstance(leaf, torch.SymFloat):
        return torch.get_default_dtype()
    if is_traced_array(leaf):
        is_pythons = stands_for_number(leaf) and leaf.tensor.is_floating_point()
        return torch.get_default_dtype() if is_pythons else leaf.tensor.dtype
    if isinstance(leaf, torch.SymInt):
        return torch.int64
    return leaf.dtype if isinstance(leaf, torch.Tensor) else torch.as_tensor(leaf).dtype


def _stacked(data: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(data, list | tuple):
        return torch.stack([_stacked(one, dtype) for one in data]).detach()
    if is_traced_array(data):
        return data.tensor.to(dtype)
    if isinstance(data, torch.Tensor):
        if data.numel() != 1:  # PyTorch's words
            raise ValueError("only one element tensors can be converted to Python scalars")
        return data.reshape(()).to(dtype)
    return torch.scalar_tensor(data, dtype=dtype)
