"""Sparse tensors in a step: indices and values, which are dense tensors of the program.

XLA has no sparse arrays. A matrix of a graph's edges that a module keeps, or that a step makes of indices and values, is these
two to the trace; its product with a dense matrix gathers rows, scales and adds them up. What has no such form is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

import torch

from ...utilities._torch_internals import _disable_current_modes, no_torch_functions
from .._errors import UnsupportedOpError, user_line_of

Numbers = torch.Tensor | Sequence[Any] | float
"""Whatever PyTorch makes a tensor of."""


class SparseTensor(torch.Tensor):
    """A sparse tensor of the trace: shape and dtype for everybody who asks, and its elements for us.

    Attributes:
        elements: the elements.
        functions: by function of PyTorch: what it does with elements (`_sparse_functions.py`).
    """

    elements: Elements
    functions: ClassVar[dict[Callable[..., Any], Callable[..., Any]]] = {}

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The result of a function of PyTorch's that is given such a tensor."""
        del types
        if func in cls.functions:
            return cls.functions[func](*args, **(kwargs or {}))
        if _asks_for_kind(func):
            with no_torch_functions():
                return func(*args, **(kwargs or {}))
        refuse_sparse(getattr(func, "__name__", str(func)))

    @classmethod
    def __torch_dispatch__(
        cls, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> NoReturn:
        """Refuse an op that nothing of ours has taken apart."""
        del types, args, kwargs
        refuse_sparse(str(func))


def _asks_for_kind(function: Callable[..., Any]) -> bool:
    kinds: Any = torch.Tensor
    getters = (kinds.shape, kinds.dtype, kinds.device, kinds.ndim, kinds.is_cuda, kinds.is_meta, kinds.is_leaf)
    methods = (kinds.size, kinds.dim, kinds.numel, kinds.is_floating_point, kinds.is_complex, kinds.__len__)
    return function in [one.__get__ for one in getters] or function in methods


@dataclass(frozen=True)
class Elements:
    """Elements of a sparse tensor.

    Attributes:
        indices: [sparse dimensions, elements].
        values: [elements, dense dimensions].
        shape: that of the tensor.
        is_coalesced: whether no place occurs twice, and they are in order.
        layout: as which PyTorch has it.
    """

    indices: torch.Tensor
    values: torch.Tensor
    shape: tuple[int, ...]
    is_coalesced: bool
    layout: torch.layout = torch.sparse_coo

    @property
    def places(self) -> tuple[torch.Tensor, ...]:
        """The indices, by dimension."""
        return self.indices.unbind(0)

    def tensor(self) -> SparseTensor:
        """The sparse tensor that has them."""
        made: Any = torch.Tensor._make_wrapper_subclass(SparseTensor, self.shape, dtype=self.values.dtype)  # type: ignore[attr-defined]
        made.elements = self
        return made

    def dense(self) -> torch.Tensor:
        """The tensor with all its zeros."""
        return self.values.new_zeros(self.shape).index_put(self.places, self.values, accumulate=True)

    def coalesced(self) -> Elements:
        """The same in order, each place once: how many there are then is a size that values decide."""
        if self.is_coalesced:
            return self
        sizes = self.shape[: len(self.indices)]
        strides = [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
        flat = sum(place * stride for place, stride in zip(self.places, strides, strict=True))
        known, number = torch.unique(flat, return_inverse=True)
        values = self.values.new_zeros((len(known), *self.values.shape[1:])).index_add(0, number, self.values)
        indices = torch.stack([known // stride % size for stride, size in zip(strides, sizes, strict=True)])
        return replace(self, indices=indices, values=values, is_coalesced=True)

    def with_values(self, values: torch.Tensor) -> SparseTensor:
        """The sparse tensor with other values at the same places."""
        return replace(self, values=values).tensor()


def refuse_sparse(what: str) -> NoReturn:
    """Raise: no program can do this with a sparse tensor."""
    raise UnsupportedOpError(
        f"The step uses a sparse tensor for what a compiled program has not: {what}.\n  used at {user_line_of()}\n"
        "Options: make it dense before, .to_dense(); compute with its indices() and values(), by index_select and index_add; "
        "or run in eager PyTorch with Trainer(compile=False)."
    )


def elements_of(tensor: torch.Tensor) -> Elements:
    """The elements of a sparse tensor from outside of the step."""
    if tensor.requires_grad:
        refuse_sparse("a parameter that is sparse, or another sparse tensor that requires a gradient")
    with _disable_current_modes():
        own = tensor if tensor.layout is torch.sparse_coo else tensor.to_sparse_coo()
        return Elements(own._indices(), own._values(), tuple(tensor.shape), own.is_coalesced(), tensor.layout)


def made_sparse(indices: Numbers, values: Numbers, size: Sequence[int] | None = None, **options: Any) -> SparseTensor:
    """`torch.sparse_coo_tensor` of values of the trace."""
    indices = torch.as_tensor(indices)
    values = torch.as_tensor(values, dtype=options.get("dtype"))
    if indices.dim() == 1:
        indices = indices.unsqueeze(0)
    if size is None:
        size = (*((int(one.max()) + 1) for one in indices), *values.shape[1:])
    if values.dim() == 0:
        values = values.expand(indices.shape[1])
    return Elements(indices, values, tuple(size), bool(options.get("is_coalesced"))).tensor()


def made_of_rows(
    crow_indices: Numbers, col_indices: Numbers, values: Numbers, size: Sequence[int] | None = None, **options: Any
) -> SparseTensor:
    """`torch.sparse_csr_tensor` of values of the trace."""
    ends, columns = torch.as_tensor(crow_indices)[1:], torch.as_tensor(col_indices)
    rows = torch.searchsorted(ends, torch.arange(len(columns), dtype=ends.dtype), right=True)
    size = (len(ends), int(columns.max()) + 1) if size is None else size
    made = made_sparse(torch.stack([rows, columns]), values, size, **options)
    return replace(made.elements, is_coalesced=True, layout=torch.sparse_csr).tensor()


def sparse_of_dense(tensor: torch.Tensor, *dims: Any, **options: Any) -> SparseTensor:
    """`tensor.to_sparse()`: how many elements there are is a size that values decide."""
    if dims or options.get("layout", torch.sparse_coo) is not torch.sparse_coo:
        refuse_sparse("to_sparse with another layout, or with dense dimensions")
    indices = tensor.nonzero().T
    return Elements(indices, tensor[indices.unbind(0)], tuple(tensor.shape), True).tensor()
