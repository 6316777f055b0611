"""Linear algebra against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op
from jax.sharding import SingleDeviceSharding

from systolic.compiler.lowering import LoweringContext
from systolic.compiler.lowering._context import lowering_context
from systolic.compiler.lowering._linalg import linalg_pinv, linalg_svd
from systolic.preflight import parse_slice, slice_devices

pytestmark = pytest.mark.thin(6)

L = torch.linalg


def positive(a: torch.Tensor) -> torch.Tensor:
    return a @ a.mT + 3 * torch.eye(a.shape[-1], dtype=a.dtype)


SQUARE: dict[str, Callable[..., Any]] = {
    "det": lambda a: L.det(a),
    "det_transposed": lambda a: L.det(a.mT),
    "slogdet": lambda a: L.slogdet(a),
    "slogdet_transposed": lambda a: L.slogdet(a.mT),
    "logdet": lambda a: torch.logdet(positive(a)),
    "inv": lambda a: L.inv_ex(a)[0],
    "solve": lambda a: L.solve_ex(a, a[..., :2])[0],
    "solve_transposed": lambda a: L.solve_ex(a.mT, a[..., :2])[0],
    "solve_vector": lambda a: L.solve_ex(a, a[..., 0])[0],
    "solve_right": lambda a: L.solve_ex(a, a[..., :2, :], left=False)[0],
    "cholesky": lambda a: L.cholesky_ex(positive(a))[0],
    "cholesky_upper": lambda a: L.cholesky_ex(positive(a), upper=True)[0],
    "cholesky_solve": lambda a: torch.cholesky_solve(a, L.cholesky_ex(positive(a))[0]),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(L.cholesky_ex(positive(a))[0]),
    "qr": lambda a: L.qr(a[..., :3]),
    "qr_complete": lambda a: L.qr(a.detach()[..., :3], mode="complete"),
    "qr_r": lambda a: L.qr(a.detach(), mode="r")[1],
    "svd": lambda a: ((u := L.svd(a[..., :3], full_matrices=False))[0] * u[1][..., None, :] @ u[2], u[1]),
    "svdvals": lambda a: L.svdvals(a),
    "eigh": lambda a: ((e := L.eigh(positive(a)))[0], e[1].square()),
    "eigvalsh": lambda a: L.eigvalsh(positive(a)),
    "eigvals": lambda a: L.eigvals(a.detach()).abs().sort(-1)[0],
    "lu": lambda a: L.lu(a),
    "lu_factor": lambda a: L.lu_factor_ex(a)[:2],
    "lu_solve": lambda a: L.lu_solve(*L.lu_factor_ex(a)[:2], a[..., :2]),
    "lu_solve_adjoint": lambda a: L.lu_solve(*L.lu_factor_ex(a)[:2], a[..., :2], adjoint=True),
    "lu_solve_right": lambda a: L.lu_solve(*L.lu_factor_ex(a)[:2], a[..., :2, :], left=False),
    "solve_triangular": lambda a: L.solve_triangular(a + 3 * torch.eye(4), a[..., :2], upper=True),
    "solve_triangular_right": lambda a: L.solve_triangular(a, a[..., :2, :], upper=False, left=False, unitriangular=True),
    "matrix_exp": lambda a: L.matrix_exp(a / 2),
    "pinv": lambda a: L.pinv(a[..., :3]),
    "matrix_power": lambda a: L.matrix_power(a, 3),
    "matrix_norm": lambda a: L.matrix_norm(a, "nuc"),
}
if hasattr(L, "polar"):  # since PyTorch 2.14
    SQUARE["polar"] = lambda a: L.polar(a[..., :3])
    SQUARE["matrix_sqrth"] = lambda a: L.matrix_sqrth(positive(a))


@pytest.mark.parametrize("shape", [(4, 4), (2, 4, 4)])
@pytest.mark.parametrize("case", SQUARE)
def test_square(case: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    # double, as the condition of a matrix multiplies rounding errors; the output's weights are float32 all the same
    a = torch.randn(shape, dtype=torch.float64) + 2 * torch.eye(4, dtype=torch.float64)
    check_op(lambda a: SQUARE[case](a), a.requires_grad_(), atol=1e-7)


@pytest.mark.parametrize("case", ["det", "inv", "solve", "cholesky", "qr", "svdvals", "eigh"])
def test_single(case: str) -> None:
    torch.manual_seed(1)
    a = torch.randn(4, 4) + 4 * torch.eye(4)
    check_op(SQUARE[case], a.requires_grad_(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (2, 4, 4)])
def test_the_decomposition_of_programs_for_tpus(shape: tuple[int, ...], full: bool) -> None:
    a = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    a[..., 1] = a[..., 0]  # a singular value of nearly zero
    given = jnp.asarray(a.numpy())
    with jax.enable_x64(True), lowering_context(LoweringContext(platform="tpu")):
        u, s, vh = (torch.from_numpy(np.array(x)) for x in linalg_svd(given, full))
        inverse = torch.from_numpy(np.array(linalg_pinv(given)))
    expected = L.svd(a, full_matrices=full)
    assert [x.shape for x in (u, s, vh)] == [x.shape for x in expected]
    torch.testing.assert_close(s, expected.S, rtol=1e-5, atol=1e-5)
    least = s.shape[-1]
    torch.testing.assert_close(u[..., :least] * s[..., None, :] @ vh[..., :least, :], a, rtol=1e-5, atol=1e-5)
    for one in (u, vh.mT):
        torch.testing.assert_close(one.mT @ one, torch.eye(one.shape[-1]).expand_as(one.mT @ one), rtol=0, atol=1e-5)
    torch.testing.assert_close(inverse, L.pinv(a), rtol=1e-4, atol=1e-4)


@pytest.mark.tables
@pytest.mark.parametrize("function", [linalg_svd, linalg_pinv])
def test_the_compiler_of_tpus_takes_the_decomposition(function: Callable[[jax.Array], Any]) -> None:
    """With JAX's public function it refused a product of floats by int64, or ended the process."""
    pytest.importorskip("libtpu")
    given = jax.ShapeDtypeStruct((32, 8), jnp.float32, sharding=SingleDeviceSharding(slice_devices(parse_slice("v5e:1x1"))[0]))
    with jax.enable_x64(True), lowering_context(LoweringContext(platform="tpu")):
        text = jax.jit(function).lower(given).compile().as_text()
    assert text is not None
    assert "f32[32,8]" in text


def test_householder_product() -> None:
    a, tau = torch.geqrf(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    check_op(lambda a, t: L.householder_product(a, t), a, tau)


@pytest.mark.filterwarnings("ignore:torch.triangular_solve")
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_solve(upper: bool, transpose: bool) -> None:
    torch.manual_seed(1)
    a, b = torch.randn(4, 4, dtype=torch.float64) + 2 * torch.eye(4), torch.randn(4, 2, dtype=torch.float64)
    check_op(lambda b, a: torch.triangular_solve(b, a, upper, transpose)[0], b.requires_grad_(), a.requires_grad_())


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p: float) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 5, 3), torch.randn(2, 4, 3)
    y[:, 1] = x[:, 2]
    trained = p != 0
    mode = "donot_use_mm_for_euclid_dist"
    check_op(lambda x, y: torch.cdist(x, y, p, mode), x.requires_grad_(trained), y.requires_grad_(trained), atol=1e-5)
    check_op(lambda x: F.pdist(x, p), x.detach()[0].requires_grad_(trained), atol=1e-5)


def test_products() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 3, 4, requires_grad=True)
    check_op(lambda x, y: (torch.cross(x, y, dim=1), torch.trace(x[0])), x, y)
    check_op(lambda x: torch.trace(x), torch.arange(12).reshape(3, 4))


@pytest.mark.parametrize("dim", [0, 2])
def test_weight_norm(dim: int) -> None:
    torch.manual_seed(0)
    v = torch.randn(4, 3, 2, requires_grad=True)
    g = torch.rand(4, 1, 1) if dim == 0 else torch.rand(1, 1, 2)
    check_op(lambda v, g: torch._weight_norm(v, g, dim), v, g.requires_grad_())
