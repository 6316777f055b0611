"""Functions of PyTorch for sparse tensors of a trace: what each does with indices and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional

from ...utilities._torch_internals import sparse_sum
from ._sparse_tensors import Elements, SparseTensor, made_of_rows, made_sparse, refuse_sparse, sparse_of_dense


def _product(one: torch.Tensor, other: torch.Tensor, reduce: str = "sum") -> torch.Tensor:
    """A sparse matrix and a dense one, or the other way round; `reduce` as `torch.sparse.mm` has it for compressed rows."""
    if reduce != "sum" and isinstance(one, SparseTensor):
        return _reduced(one.elements, other, reduce)
    if not isinstance(one, SparseTensor):
        return _product(_transposed(other), one.transpose(-2, -1)).transpose(-2, -1)
    if isinstance(other, SparseTensor):
        refuse_sparse("a product of two sparse matrices, whose number of elements depends on values")
    own = one.elements
    _require_fitting(own.shape, tuple(other.shape))
    if own.values.dtype != other.dtype:
        raise RuntimeError(f"expected both matrices of one dtype, but got {own.values.dtype} and {other.dtype}")
    if own.values.dim() != 1 or other.dim() > len(own.shape):
        refuse_sparse(f"a product of shapes {own.shape} and {tuple(other.shape)}")
    *batch, rows, columns = own.places
    taken = other[(*batch, columns)]
    weighted = taken * (own.values if taken.dim() == 1 else own.values.unsqueeze(-1))
    result = other.new_zeros((*own.shape[:-1], *other.shape[len(own.shape) - 1 :]))
    return result.index_put((*batch, rows), weighted, accumulate=True)


def _reduced(own: Elements, other: torch.Tensor, reduce: str) -> torch.Tensor:
    """For each row the mean, the largest or the smallest of its elements times rows of a dense matrix."""
    _require_fitting(own.shape, tuple(other.shape))
    rows, columns = own.places
    weighted = other[columns] * own.values.unsqueeze(-1)
    zeros = other.new_zeros((own.shape[0], other.shape[1]))
    return zeros.scatter_reduce(0, rows.unsqueeze(-1).expand_as(weighted), weighted, reduce, include_self=False)


def _linear(one: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    result = _product(one, weight.t())
    return result if bias is None else result + bias


def _require_fitting(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    torch.matmul(torch.empty(shape, device="meta"), torch.empty(other, device="meta"))  # with PyTorch's error


def _sum_of_product(
    bias: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    return beta * bias + alpha * _product(one, other)


def _transposed(one: torch.Tensor, *dims: int) -> SparseTensor:
    assert isinstance(one, SparseTensor)
    own = one.elements
    if sorted(dim % 2 for dim in dims or (0, 1)) != [0, 1] or len(own.indices) != 2 or own.values.dim() != 1:
        refuse_sparse(f"a transposition of a tensor of shape {own.shape}")
    return Elements(own.indices.flip(0), own.values, own.shape[::-1], False, own.layout).tensor()


def _scaled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A product or quotient with a number, or element by element with a dense tensor."""

    def scaled(one: torch.Tensor | float, other: torch.Tensor | float) -> SparseTensor:
        if isinstance(other, SparseTensor):
            if isinstance(one, SparseTensor) or function is torch.div:
                refuse_sparse("a product or quotient, element by element, with a sparse tensor")
            one, other = other, one
        assert isinstance(one, SparseTensor)
        own = one.elements
        if isinstance(other, torch.Tensor) and other.dim() > 0:
            other = other.expand(own.shape)[own.places]
        return own.with_values(function(own.values, other))

    return scaled


def _added(sign: int) -> Callable[..., Any]:
    """A sum, or a difference, of sparse tensors, or of a dense and a sparse one."""

    def added(one: torch.Tensor | float, other: torch.Tensor | float, *, alpha: float = 1) -> torch.Tensor:
        if not (isinstance(one, torch.Tensor) and isinstance(other, SparseTensor)):
            refuse_sparse("a sum with a dense tensor or a number behind it: put the dense one first")
        more = sign * alpha * other.elements.values
        if not isinstance(one, SparseTensor):
            return one.index_put(other.elements.places, more, accumulate=True)
        own = one.elements
        indices, values = torch.cat([own.indices, other.elements.indices], 1), torch.cat([own.values, more])
        return Elements(indices, values, own.shape, False, own.layout).tensor()

    return added


def _sum(one: SparseTensor, dim: int | Sequence[int] | None = None, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    own = one.elements
    values = own.values if dtype is None else own.values.to(dtype)
    if dim is None:
        return values.sum()
    gone = [number % len(own.shape) for number in ([dim] if isinstance(dim, int) else dim)]
    if any(number >= len(own.indices) for number in gone):
        refuse_sparse("a sum over dense dimensions")
    left = [number for number in range(len(own.indices)) if number not in gone]
    shape = tuple(size for number, size in enumerate(own.shape) if number not in gone)
    return Elements(own.indices[left], values, shape, False).tensor() if left else values.sum(0)


def _softmax(one: SparseTensor, dim: int, dtype: torch.dtype | None = None, *, logarithm: bool = False) -> SparseTensor:
    """Over the elements that there are, as PyTorch has it."""
    own = one.elements.coalesced()
    if len(own.shape) != 2 or own.values.dim() != 1:
        refuse_sparse(f"softmax of a tensor of shape {own.shape}")
    group, count = own.indices[1 - dim % 2], own.shape[1 - dim % 2]
    values = own.values if dtype is None else own.values.to(dtype)
    largest = values.new_full((count,), -math.inf).scatter_reduce(0, group, values.detach(), "amax")
    values = values - largest[group]
    sums = values.new_zeros(count).index_add(0, group, values.exp())[group]
    return own.with_values(values - sums.log() if logarithm else values.exp() / sums)


def _of_values(function: Callable[..., Any], *, of_each: bool = False) -> Callable[..., Any]:
    """A function of the values alone; `of_each` place, where they have to be one."""

    def of_values(one: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        own = one.elements.coalesced() if of_each else one.elements
        return own.with_values(function(own.values, *args, **kwargs))

    return of_values


def _said_to_be_coalesced(one: SparseTensor, is_coalesced: bool) -> SparseTensor:
    one.elements = replace(one.elements, is_coalesced=is_coalesced)
    return one


def _coalesced_part(name: str) -> Callable[[SparseTensor], Any]:
    def part(one: SparseTensor) -> Any:
        if not one.elements.is_coalesced:  # PyTorch's words
            raise RuntimeError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")
        return getattr(one.elements, name)

    return part


def _laid_out(elements: Elements, layout: torch.layout) -> SparseTensor:
    return replace(elements, layout=layout).tensor()


MAKING_SPARSE: dict[Callable[..., Any], Callable[..., SparseTensor]] = {
    torch.sparse_coo_tensor: made_sparse,
    torch.sparse_csr_tensor: made_of_rows,
}
TO_SPARSE: dict[Callable[..., Any], Callable[..., SparseTensor]] = {
    **MAKING_SPARSE,
    torch.Tensor.to_sparse: sparse_of_dense,
    torch.Tensor.to_sparse_coo: sparse_of_dense,
}
"""By function that makes a sparse tensor: the one of the trace. Others are methods of dense tensors."""

_KIND: Any = torch.Tensor
_ALIKE = ("detach", "clone", "contiguous", "to", "float", "double", "half", "bfloat16", "cpu", "type", "neg")
_OF_EACH = ("abs", "sqrt", "square", "relu", "sin", "tanh", "sign", "pow", "log1p", "expm1", "floor", "ceil", "round")


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    **dict.fromkeys((torch.mm, torch.matmul, torch.mv, torch.bmm, torch.sparse.mm, torch.smm), _product),
    **dict.fromkeys((_KIND.mm, _KIND.matmul, _KIND.mv, _KIND.bmm), _product),
    functional.linear: _linear,
    _KIND.__rmatmul__: lambda one, other: _product(other, one),
    **dict.fromkeys((torch.addmm, _KIND.addmm, torch.sparse.addmm), _sum_of_product),
    **dict.fromkeys((torch.t, torch.transpose, _KIND.t, _KIND.transpose, _KIND.T.__get__, _KIND.mT.__get__), _transposed),
    **dict.fromkeys((torch.mul, _KIND.mul, _KIND.__mul__, _KIND.__rmul__, torch.multiply), _scaled(torch.mul)),
    **dict.fromkeys((torch.div, _KIND.div, _KIND.__truediv__, torch.divide), _scaled(torch.div)),
    **dict.fromkeys((torch.add, _KIND.add, _KIND.__add__), _added(1)),
    **dict.fromkeys((torch.sub, _KIND.sub, _KIND.__sub__), _added(-1)),
    **dict.fromkeys((torch.sum, _KIND.sum, sparse_sum), _sum),
    torch.sparse.softmax: _softmax,
    torch.sparse.log_softmax: lambda one, *args, **kwargs: _softmax(one, *args, logarithm=True, **kwargs),
    **{getattr(_KIND, name): _of_values(getattr(_KIND, name)) for name in _ALIKE},
    torch.neg: _of_values(torch.neg),
    torch.clone: _of_values(torch.clone),
    **{getattr(_KIND, name): _of_values(getattr(_KIND, name), of_each=True) for name in _OF_EACH},
    **{getattr(torch, name): _of_values(getattr(torch, name), of_each=True) for name in _OF_EACH},
    _KIND.to_dense: lambda one, dtype=None, **kwargs: one.elements.dense() if dtype is None else one.elements.dense().to(dtype),
    _KIND.coalesce: lambda one: one.elements.coalesced().tensor(),
    _KIND._coalesced_: _said_to_be_coalesced,
    _KIND.is_coalesced: lambda one: one.elements.is_coalesced,
    _KIND.indices: _coalesced_part("indices"),
    _KIND.values: _coalesced_part("values"),
    _KIND._indices: lambda one: one.elements.indices.detach(),
    _KIND._values: lambda one: one.elements.values.detach(),
    _KIND._nnz: lambda one: len(one.elements.values),
    _KIND.sparse_dim: lambda one: len(one.elements.indices),
    _KIND.dense_dim: lambda one: one.elements.values.dim() - 1,
    **dict.fromkeys((_KIND.to_sparse, _KIND.to_sparse_coo), lambda one: _laid_out(one.elements, torch.sparse_coo)),
    _KIND.to_sparse_csr: lambda one: _laid_out(one.elements.coalesced(), torch.sparse_csr),
    _KIND.layout.__get__: lambda one: one.elements.layout,
    _KIND.is_sparse.__get__: lambda one: one.elements.layout is torch.sparse_coo,
    _KIND.is_sparse_csr.__get__: lambda one: one.elements.layout is torch.sparse_csr,
    _KIND.requires_grad.__get__: lambda one: one.elements.values.requires_grad,
}
SparseTensor.functions.update(_FUNCTIONS)
