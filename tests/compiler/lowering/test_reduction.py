from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from compiler.lowering.op_check import check_op

pytestmark = pytest.mark.thin(3)

T = torch.Tensor
INF, NAN = float("inf"), float("nan")


def draw(*shape: int) -> T:
    torch.manual_seed(2)
    return torch.randn(shape, requires_grad=True)


def tied() -> T:
    torch.manual_seed(3)
    return torch.randint(0, 4, (4, 6)).float()


# what is reduced has shape (3, 5, 4)
REDUCTIONS: dict[str, Callable[[T], object]] = {
    "sum": torch.sum,
    "sum_dim": lambda x: x.sum(-2),
    "sum_dims": lambda x: x.sum((0, -1), keepdim=True),
    "sum_no_dims": lambda x: x.sum(()),
    "sum_dtype": lambda x: x.sum(1, dtype=torch.float64),
    "nansum": lambda x: torch.nansum(x, 1),
    "mean": torch.mean,
    "mean_dims": lambda x: x.mean((0, 2)),
    "mean_keepdim": lambda x: x.mean(-1, keepdim=True),
    "prod": torch.prod,
    "prod_dim": lambda x: x.prod(1, keepdim=True),
    "var": torch.var,
    "var_biased": lambda x: x.var((0, 2), unbiased=False, keepdim=True),
    "var_correction": lambda x: torch.var(x, 1, correction=2),
    "std": lambda x: x.std(-1),
    "std_all": torch.std,
    "var_mean": lambda x: torch.var_mean(x, 1),
    "std_mean": lambda x: torch.std_mean(x, (1, 2), keepdim=True),
    "logsumexp": lambda x: torch.logsumexp(x, (0, 1)),
    "logsumexp_keepdim": lambda x: torch.logsumexp(x, -1, keepdim=True),
    "norm": torch.norm,
    "norm_1": lambda x: x.norm(1, dim=1),
    "norm_3": lambda x: torch.linalg.vector_norm(x, 3, dim=(0, 1)),
    "norm_0": lambda x: torch.linalg.vector_norm(x, 0, dim=1),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, INF, dim=1),
    "norm_minus_inf": lambda x: torch.linalg.vector_norm(x, -INF, dim=1),
    "norm_half": lambda x: torch.linalg.vector_norm(x, 0.5, dim=1),
    "frobenius": lambda x: torch.linalg.matrix_norm(x),
    "normalize": lambda x: torch.nn.functional.normalize(x, dim=1),
    "dist": lambda x: torch.dist(x[0], x[1], 3),
    "max": torch.max,
    "min": torch.min,
    "amax": lambda x: x.amax((0, 1)),
    "amin": lambda x: x.amin(-1, keepdim=True),
    "amax_all": lambda x: x.amax(),
    "aminmax": lambda x: torch.aminmax(x),
    "aminmax_dim": lambda x: torch.aminmax(x, dim=1, keepdim=True),
    "argmax": lambda x: x.argmax(),
    "argmax_dim": lambda x: x.argmax(-2),
    "argmax_keepdim": lambda x: x.argmax(keepdim=True),
    "argmin": lambda x: x.argmin(1, keepdim=True),
    "all": lambda x: (x > -9).all(),
    "all_dim": lambda x: (x > 0).all(1),
    "any_dims": lambda x: torch.any(x > 1, (0, 2), keepdim=True),
    "any_of_floats": lambda x: x.any(),
    "count_nonzero": lambda x: torch.count_nonzero(x > 0),
    "count_nonzero_dim": lambda x: torch.count_nonzero(x > 0, dim=(0, 1)),
    "cumsum": lambda x: x.cumsum(1),
    "cumsum_dtype": lambda x: x.detach().cumsum(-1, dtype=torch.float64),
    "cumprod": lambda x: x.detach().cumprod(1),
    "logcumsumexp": lambda x: x.detach().logcumsumexp(1),
    "softmax": lambda x: x.softmax(1),
    "trace": lambda x: torch.trace(x[0]),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "weight_norm": lambda x: torch._weight_norm(x, x.sum((1, 2), keepdim=True), 0),
    "weight_norm_last": lambda x: torch._weight_norm(x, x.sum((0, 1), keepdim=True), 2),
}


@pytest.mark.parametrize("function", REDUCTIONS.values(), ids=REDUCTIONS)
def test_reduction(function: Callable[[T], object]) -> None:
    check_op(function, draw(3, 5, 4))


IN_BFLOAT16 = ["sum", "sum_dim", "mean", "mean_dims", "var", "var_mean", "norm", "norm_1", "logsumexp", "max", "amax", "cumsum", "softmax", "prod_dim", "std"]  # fmt: skip


@pytest.mark.parametrize("case", IN_BFLOAT16)
def test_reduction_in_bfloat16(case: str) -> None:
    check_op(REDUCTIONS[case], draw(3, 5, 4).detach().bfloat16(), rtol=8e-3)


@pytest.mark.parametrize(
    "case", ["sum", "sum_dim", "sum_dims", "prod_dim", "max", "amax", "argmax", "cumsum", "any_of_floats", "aminmax"]
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_reduction_of_integers(case: str, dtype: torch.dtype) -> None:
    if case == "argmax" and dtype == torch.bool:
        pytest.skip("PyTorch has no argmax of booleans")
    check_op(REDUCTIONS[case], torch.arange(60).reshape(3, 5, 4).remainder(7).to(dtype))


EXTREMA: dict[str, Callable[[T], object]] = {
    "max_dim": lambda x: torch.max(x, 1),
    "min_dim": lambda x: torch.min(x, 0, keepdim=True),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(0),
    "argmax_all": lambda x: x.argmax(),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(),
    "max": torch.max,
    "cummax": lambda x: torch.cummax(x, 1),
    "cummin": lambda x: torch.cummin(x, 0),
    "sort": lambda x: torch.sort(x, dim=1, stable=True),
    "sort_descending": lambda x: torch.sort(x, dim=0, descending=True, stable=True),
    "argsort": lambda x: torch.argsort(x, dim=-1, stable=True),
    "topk_values": lambda x: torch.topk(x, 3, 1)[0],
    "topk_smallest_values": lambda x: torch.topk(x, 2, 0, largest=False)[0],
    "kthvalue": lambda x: torch.kthvalue(x, 2, 1)[0],
    "median_values": lambda x: torch.median(x, 1)[0],
    "median_all": torch.median,
    "nanmedian_values": lambda x: torch.nanmedian(x, 1, keepdim=True)[0],
    "nanmedian_all": torch.nanmedian,
    "mode_values": lambda x: torch.mode(x, 1)[0],
    "msort": torch.msort,
}
WITHOUT_TIES = {
    "topk": lambda x: torch.topk(x, 3, 1),
    "topk_smallest": lambda x: torch.topk(x, 2, 0, largest=False),
    "kthvalue": lambda x: torch.kthvalue(x, 2, 1, keepdim=True),
    "median": lambda x: torch.median(x, 1),
    "nanmedian": lambda x: torch.nanmedian(x, -1),
    "sort": lambda x: torch.sort(x, 0, descending=True),
}


@pytest.mark.parametrize("function", EXTREMA.values(), ids=EXTREMA)
def test_ties(function: Callable[[T], object]) -> None:
    check_op(function, tied())
    check_op(function, tied().long())


# what PyTorch's mode gives next to nan depends on the order of its sort
@pytest.mark.parametrize("case", [case for case in EXTREMA if case != "mode_values"])
def test_nan_and_infinity(case: str) -> None:
    x, function = tied(), EXTREMA[case]
    x[0, 2], x[1, 1], x[1, 4], x[2, 0], x[2, 1] = NAN, INF, NAN, -INF, INF
    check_op(function, x)


@pytest.mark.parametrize("function", [*WITHOUT_TIES.values()], ids=[*WITHOUT_TIES])
def test_places_without_ties(function: Callable[[T], object]) -> None:
    check_op(function, draw(4, 6).detach())
    check_op(function, torch.arange(24).mul(7).remainder(24).reshape(4, 6))


@pytest.mark.parametrize("case", [case for case in EXTREMA if case != "mode_values"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32, torch.uint8])
def test_extrema_of_other_dtypes(case: str, dtype: torch.dtype) -> None:
    check_op(EXTREMA[case], tied().to(dtype))


@pytest.mark.parametrize("case", ["max_dim", "amax", "max", "cummax", "sort", "sort_descending"])
def test_extrema_of_booleans(case: str) -> None:
    check_op(EXTREMA[case], tied() > 1)


@pytest.mark.parametrize("case", ["amax", "amin", "max"])
def test_gradient_of_ties_is_shared(case: str) -> None:
    check_op(EXTREMA[case], tied().requires_grad_())


@pytest.mark.parametrize(
    "function",
    [
        torch.sum, torch.mean, torch.max, lambda x: x.argmax(), lambda x: x.max(0), lambda x: x.cumsum(0), lambda x: x.sort(0),
        lambda x: x.median(0), lambda x: x.topk(1, 0), lambda x: x.cummax(0), lambda x: x.softmax(0), lambda x: x.norm(),
        lambda x: x.mode(0), lambda x: x.all(), lambda x: x.logsumexp(0), lambda x: x.var(0, correction=0),
    ],
)  # fmt: skip
def test_scalars(function: Callable[[T], object]) -> None:
    check_op(function, torch.tensor(2.5))


def test_empties() -> None:
    empty = torch.zeros(0, 3)
    for function in (
        torch.sum,
        torch.mean,
        torch.prod,
        lambda x: x.sum(0),
        lambda x: x.amax(1),
        lambda x: x.all(),
        lambda x: x.any(0),
        lambda x: x.norm(),
    ):
        check_op(function, empty)


def test_search() -> None:
    edges, wanted = torch.tensor([0.0, 1.0, 1.0, 3.0]), torch.tensor([[-1.0, 0.0, 1.0], [2.0, 3.0, 4.0]])
    check_op(lambda w, e: torch.bucketize(w, e), wanted, edges)
    check_op(lambda w, e: torch.bucketize(w, e, right=True, out_int32=True), wanted, edges)
    check_op(lambda w, e: torch.searchsorted(e, w), wanted, edges)
    check_op(lambda w, e: torch.searchsorted(e, w, side="right"), wanted, edges.expand(2, 4).contiguous())
    check_op(lambda e: torch.searchsorted(e, 1.5), edges)
    check_op(lambda w, e, s: torch.searchsorted(e, w, sorter=s), wanted, edges.flip(0), torch.tensor([3, 2, 1, 0]))


PRODUCTS: dict[str, Callable[[T, T], T]] = {
    "mm": lambda x, y: x[0] @ y[0],
    "bmm": lambda x, y: torch.bmm(x, y),
    "matmul_flat": lambda x, y: x @ y[0],
    "matmul_broadcast": lambda x, y: x[:, None] @ y,
    "mv": lambda x, y: x[0] @ y[0, :, 0],
    "dot": lambda x, y: torch.dot(x[0, 0], y[0, :, 0]),
    "vdot": lambda x, y: torch.vdot(x[0, 0], y[0, :, 0]),
    "outer": lambda x, y: torch.outer(x[0, 0], y[0, 0]),
    "addmm": lambda x, y: torch.addmm(y[0, 0, :3], x[0], y[0, :, :3], beta=0.5, alpha=2),
    "addmm_ignores": lambda x, y: torch.addmm(torch.full((3,), NAN), x[0], y[0, :, :3], beta=0),
    "addmv": lambda x, y: torch.addmv(x[0, :, 0], x[0], y[0, :, 0], beta=2, alpha=0.5),
    "addr": lambda x, y: torch.addr(x[0], x[0, :, 0], x[0, 0], beta=0.5, alpha=3),
    "addbmm": lambda x, y: torch.addbmm(y[0, :3], x, y, beta=0.5, alpha=2),
    "baddbmm": lambda x, y: torch.baddbmm(y[:, :3], x, y, beta=0.5, alpha=2),
    "linear": lambda x, y: torch.nn.functional.linear(x, y[0].t(), y[0, 0]),
    "linear_without_bias": lambda x, y: torch.nn.functional.linear(x, y[0].t()),
    "einsum": lambda x, y: torch.einsum("bij,bjk->ik", x, y),
    "tensordot": lambda x, y: torch.tensordot(x, y, dims=([0, 2], [0, 1])),
    "bilinear": lambda x, y: torch.nn.functional.bilinear(x[0], x[0], y[:, :, :4].contiguous()),
    "cdist": lambda x, y: torch.cdist(x, y.transpose(1, 2)),
    "cdist_1": lambda x, y: torch.cdist(x, y.transpose(1, 2), p=1.0),
    "cdist_3": lambda x, y: torch.cdist(x, y.transpose(1, 2), p=3.0),
    "cdist_half": lambda x, y: torch.cdist(x, y.transpose(1, 2), p=1.5),
    "cdist_inf": lambda x, y: torch.cdist(x, y.transpose(1, 2), p=INF),
    "cdist_by_product": lambda x, y: torch.cdist(x, y.transpose(1, 2), compute_mode="use_mm_for_euclid_dist"),
    "pdist": lambda x, y: torch.pdist(x[0]) + torch.pdist(x[1], 1.0) + torch.pdist(x[0], 3.0),
    "chain": lambda x, y: torch.linalg.multi_dot([x[0], y[0], y[0].t()]),
    "kron": lambda x, y: torch.kron(x[0], y[0]),
}


@pytest.mark.parametrize("function", PRODUCTS.values(), ids=PRODUCTS)
def test_product(function: Callable[[T, T], T]) -> None:
    check_op(function, draw(2, 3, 4), (draw(2, 4, 5) * 0.7).detach().requires_grad_(), atol=1e-5)


@pytest.mark.parametrize("case", ["mm", "bmm", "addmm", "linear", "baddbmm", "mv", "dot"])
def test_product_in_bfloat16(case: str) -> None:
    check_op(PRODUCTS[case], draw(2, 3, 4).detach().bfloat16(), draw(2, 4, 5).detach().bfloat16(), rtol=8e-3, atol=8e-3)


def test_product_of_integers() -> None:
    x, y = torch.arange(12).reshape(3, 4), torch.arange(8).reshape(4, 2)
    check_op(torch.mm, x, y)
    check_op(torch.mm, x.int(), y.int())
    check_op(lambda a, b: torch.addmm(torch.ones(2, dtype=torch.int64), a, b, alpha=2), x, y)
    check_op(torch.mm, torch.zeros(3, 0), torch.zeros(0, 2))
