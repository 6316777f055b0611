"""Indexing, gathers and scatters against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiler.lowering.op_check import check_op

from systolic.compiler.lowering import LoweringContext, find_lowering
from systolic.compiler.lowering._context import lowering_context

pytestmark = pytest.mark.thin(3)

aten = torch.ops.aten


def ints(*values: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


MASK = torch.tensor([[True, False, True], [False, False, True]])

READS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "index": (lambda x, i: x[i], [floats(4, 3), ints(3, -1, 0, 3)]),
    "index_int32": (lambda x, i: x[i.int()], [floats(4, 3), ints(3, -1, 0, 3)]),
    "index_two": (lambda x, i, j: x[i, j], [floats(4, 3, 2), ints(3, 0), ints([0], [2])]),
    "index_apart": (lambda x, i, j: x[i, :, j], [floats(4, 3, 2), ints(3, 0), ints(1, -2)]),
    "index_last": (lambda x, i: x[..., i], [floats(4, 3, 2), ints(1, 1, 0)]),
    "index_zero_dim": (lambda x, i: aten.index(x, [i]), [floats(4, 3), torch.tensor(2)]),
    "index_empty": (lambda x, i: x[i], [floats(4, 3), torch.zeros(0, dtype=torch.int64)]),
    "index_select": (lambda x, i: x.index_select(-1, i), [floats(4, 3), ints(2, 0, 2)]),
    "index_select_scalar": (lambda x, i: x.index_select(0, i), [floats(), ints(0)]),
    "gather": (lambda x, i: x.gather(1, i), [floats(4, 3), ints([0, 2, 1, 1], [0, 0, 0, 2])]),
    "gather_first": (lambda x, i: x.gather(0, i), [floats(4, 3), ints([0, 2], [3, 0])]),
    "gather_scalar": (lambda x, i: x.gather(0, i), [floats(), torch.tensor(0)]),
    "take": (lambda x, i: x.take(i), [floats(4, 3), ints([0, 11], [-1, 5])]),
    "take_along_dim": (lambda x, i: x.take_along_dim(i, 1), [floats(4, 3), ints([0, 2], [1, 1], [0, 0], [2, 2])]),
}

WRITES: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "index_put": (lambda x, v, i: x.index_put((i,), v), [floats(4, 3), floats(2, 3), ints(3, -4)]),
    "index_put_broadcast": (lambda x, v, i: aten.index_put(x, [None, i], v), [floats(4, 3), floats(), ints(2, 0)]),
    "index_put_add": (lambda x, v, i: x.index_put((i,), v, True), [floats(4, 3), floats(3, 3), ints(3, 0, 3)]),
    "mask_put": (lambda x, v, m: x.index_put((m,), v), [floats(2, 3), floats(), MASK]),
    "mask_put_rows": (lambda x, v, m: x.index_put((m,), v), [floats(2, 3, 4), floats(4), MASK]),
    "mask_put_inner": (lambda x, v, m: aten.index_put(x, [None, m], v), [floats(5, 2, 3), floats(5, 1), MASK]),
    "mask_put_each": (lambda x, v, m: x.index_put((m,), v), [floats(2, 3, 4), floats(3, 4), MASK]),
    "mask_put_inner_each": (lambda x, v, m: aten.index_put(x, [None, m], v), [floats(5, 2, 3), floats(5, 3), MASK]),
    "index_add": (lambda x, v, i: x.index_add(1, i, v, alpha=2), [floats(4, 3), floats(4, 2), ints(2, 2)]),
    "index_copy": (lambda x, v, i: x.index_copy(-1, i, v), [floats(4, 3), floats(4, 2), ints(2, 0)]),
    "put": (lambda x, v, i: x.put(i, v), [floats(4, 3), floats(2), ints(11, 3)]),
    "put_add": (lambda x, v, i: x.put(i, v, True), [floats(4, 3), floats(3), ints(11, 3, 3)]),
    "scatter": (lambda x, v, i: x.scatter(1, i, v), [floats(4, 3), floats(3, 2), ints([2, 0], [0, 1], [1, 2])]),
    "scatter_add": (lambda x, v, i: x.scatter_add(0, i, v), [floats(4, 3), floats(3, 2), ints([2, 0], [0, 0], [2, 2])]),
    "scatter_scalar": (lambda x, v, i: x.scatter(0, i, v), [floats(), floats(), torch.tensor(0)]),
    "masked_scatter": (lambda x, v, m: x.masked_scatter(m, v), [floats(2, 3), floats(4), MASK]),
}


@pytest.mark.parametrize("case", READS)
def test_read(case: str) -> None:
    function, (x, *indices) = READS[case]
    check_op(function, x.clone().requires_grad_(), *indices)


@pytest.mark.parametrize("case", WRITES)
def test_write(case: str) -> None:
    function, (x, values, *indices) = WRITES[case]
    # the gradient of values written at a mask has a shape that depends on the mask
    trained = not case.startswith("mask_put")
    check_op(function, x.clone().requires_grad_(), values.clone().requires_grad_(trained), *indices)


@pytest.mark.parametrize("case", [*READS, *WRITES])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16])
def test_dtypes(case: str, dtype: torch.dtype) -> None:
    function, tensors = (READS | WRITES)[case]
    check_op(function, *[(t * 10).to(dtype) if t.is_floating_point() else t for t in tensors])


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_scatter_reduce(dtype: torch.dtype, reduce: str, include_self: bool) -> None:
    index = ints([2, 0], [2, 0], [2, 1])
    x, source = (floats(4, 3) * 5).to(dtype), (floats(3, 2) * 5).to(dtype)
    trained = dtype == torch.float32
    check_op(
        lambda x, s, i: x.scatter_reduce(0, i, s, reduce, include_self=include_self),
        x.requires_grad_(trained),
        source.requires_grad_(trained),
        index,
    )


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_index_reduce(reduce: str, include_self: bool) -> None:
    check_op(
        lambda x, s, i: x.index_reduce(1, i, s, reduce, include_self=include_self),
        floats(4, 3).requires_grad_(),
        floats(4, 4).requires_grad_(),
        ints(2, 0, 2, 2),
    )


@pytest.mark.parametrize("reduce", ["add", "multiply"])
@pytest.mark.filterwarnings("ignore:The reduce argument")
def test_scatter_with(reduce: str) -> None:
    index = ints([2, 0], [2, 0])
    check_op(lambda x, s, i: x.scatter(0, i, s, reduce=reduce), floats(4, 3), floats(3, 2), index)
    check_op(lambda x, i: x.scatter(0, i, 3.0, reduce=reduce), floats(4, 3), index)


def test_scalars() -> None:
    index = ints([2, 0], [0, 1])
    check_op(lambda x, i: (x.scatter(1, i, 2.0), x.index_fill(1, i[0], 3)), floats(4, 3), index)
    check_op(lambda x, i, v: aten.index_fill.int_Tensor(x, 1, i[0], v), floats(4, 3), index, floats())
    check_op(lambda x, m, v: x.index_put((m,), v, True), floats(2, 3), MASK, floats())


def test_nonzero_static() -> None:
    check_op(lambda m: (torch.nonzero_static(m, size=5), torch.nonzero_static(m, size=2)), MASK)


def test_unsafe_forms() -> None:
    x, mask = floats(4, 3), torch.tensor([True, False, True])
    index = ints(1, 9, 3)
    check_op(lambda x, m, i: aten._unsafe_masked_index(x, m, [i], 7.0), x, mask, ints(1, 2, 3)[:, None] * 0 + 1)
    check_op(lambda x, i: aten._unsafe_index(x, [None, i]), x, ints(2, 0))
    check_op(lambda x, i, v: aten._unsafe_index_put(x, [i], v), x, ints(2, 0), floats(2, 3))
    check_op(
        lambda x, m, i, v: aten._unsafe_masked_index_put_accumulate(x, m, [i, i], v),
        x,
        mask,
        index.clamp(max=2),
        floats(3),
    )


@pytest.mark.parametrize("op", [aten.masked_select.default, aten.nonzero.default, aten._unique2.default])
def test_unknown_shapes_are_refused(op: Any) -> None:
    lowering = find_lowering(op)
    assert lowering is not None
    with lowering_context(LoweringContext()), pytest.raises(ValueError, match="depends on the values"):
        lowering(floats(3), *[MASK][: op is aten.masked_select.default])
