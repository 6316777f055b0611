"""Factorisations, solvers and determinants."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch
from jax import lax
from jax.scipy.linalg import expm

from ...utilities._jax_internals import svd
from ._context import current
from ._table import lowers, lowers_named

aten = torch.ops.aten


def _transposed(a: jax.Array) -> jax.Array:
    return jnp.swapaxes(a, -1, -2)


def _adjoint(a: jax.Array) -> jax.Array:
    return jnp.conj(_transposed(a))


def _info(a: jax.Array) -> jax.Array:
    """The status of each matrix: zero, as nothing can raise inside a program; failures show as NaN."""
    return jnp.zeros(a.shape[:-2], jnp.int32)


def _triangular(
    a: jax.Array, b: jax.Array, *, lower: bool, unit: bool = False, left: bool = True, adjoint: bool = False
) -> jax.Array:
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (jnp.broadcast_to(m, (*batch, *m.shape[-2:])) for m in (a, b))
    if adjoint:
        a, lower = _adjoint(a), not lower
    return lax.linalg.triangular_solve(a, b, left_side=left, lower=lower, unit_diagonal=unit)


def _swaps(pivots: jax.Array, rows: int) -> jax.Array:
    """PyTorch's one-based row swaps as a permutation."""
    return lax.linalg.lu_pivots_to_permutation(pivots.astype(jnp.int32) - 1, rows)


def _lu_solve(lu: jax.Array, pivots: jax.Array, b: jax.Array, adjoint: bool) -> jax.Array:
    """Solve A x = b, or its adjoint, from A's factorisation."""
    batch = jnp.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    b = jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    order = jnp.broadcast_to(_swaps(pivots, lu.shape[-1]), (*batch, lu.shape[-1]))
    if not adjoint:
        b = jnp.take_along_axis(b, order[..., None], -2)
        return _triangular(lu, _triangular(lu, b, lower=True, unit=True), lower=False)
    y = _triangular(lu, b, lower=False, adjoint=True)
    y = _triangular(lu, y, lower=True, unit=True, adjoint=True)
    return jnp.take_along_axis(y, jnp.argsort(order, -1)[..., None], -2)


def _marked_lu(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The factorisation that a solve or determinant saves for its backward, with negative pivots.

    PyTorch saves the factors of the transpose instead where its matrix is contiguous in memory, and asks for the
    adjoint solve accordingly. Memory layout does not exist here, so the pivots say that `linalg_lu_solve` is to solve
    with the adjoint in either case.
    """
    lu, pivots, _ = lax.linalg.lu(a)
    return lu, -(pivots + 1)


@lowers(aten.linalg_lu_solve.default)
def linalg_lu_solve(lu: jax.Array, pivots: jax.Array, b: jax.Array, *, left: bool = True, adjoint: bool = False) -> jax.Array:
    """Solve from a factorisation; that of `_marked_lu` always with the adjoint."""
    ours = jnp.min(pivots, initial=1) < 0
    if not left:
        # X A = B is A^H X^H = B^H
        return _adjoint(_marked_solve(lu, pivots, _adjoint(b), ours, not adjoint, True))
    return _marked_solve(lu, pivots, b, ours, adjoint, False)


def _marked_solve(lu: jax.Array, pivots: jax.Array, b: jax.Array, ours: jax.Array, adjoint: bool, flipped: bool) -> jax.Array:
    pivots = jnp.abs(pivots)
    if adjoint != flipped:
        return _lu_solve(lu, pivots, b, adjoint)
    return lax.cond(
        ours,
        lambda: _lu_solve(lu, pivots, b, not adjoint),
        lambda: _lu_solve(lu, pivots, b, adjoint),
    )


@lowers(aten.linalg_lu_factor_ex.default)
def linalg_lu_factor_ex(
    a: jax.Array, *, pivot: bool = True, check_errors: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """L and U in one matrix, one-based row swaps, status."""
    _with_pivots(pivot)
    lu, pivots, _ = lax.linalg.lu(a)
    return lu, pivots + 1, _info(a)


@lowers(aten.linalg_lu.default)
def linalg_lu(a: jax.Array, *, pivot: bool = True) -> tuple[jax.Array, jax.Array, jax.Array]:
    """P, L and U with A = P L U."""
    _with_pivots(pivot)
    lu, _, order = lax.linalg.lu(a)
    return _unpacked(lu, order)


@lowers(aten.lu_unpack.default)
def lu_unpack(
    lu: jax.Array, pivots: jax.Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """P, L and U; what is not asked for is empty."""
    permutation, lower, upper = _unpacked(lu, _swaps(pivots, lu.shape[-2]))
    nothing = jnp.zeros(0, lu.dtype)
    return (
        permutation if unpack_pivots else nothing,
        lower if unpack_data else nothing,
        upper if unpack_data else nothing,
    )


def _unpacked(lu: jax.Array, order: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    rows, columns = lu.shape[-2:]
    inner = min(rows, columns)
    permutation = _transposed(jax.nn.one_hot(order, rows, dtype=lu.dtype))
    lower = jnp.tril(lu[..., :, :inner], -1) + jnp.eye(rows, inner, dtype=lu.dtype)
    return permutation, lower, jnp.triu(lu[..., :inner, :])


def _with_pivots(pivot: bool) -> None:
    if not pivot:
        raise ValueError("LU factorisation with pivot=False has no counterpart in XLA. Use pivot=True.")


@lowers(aten._linalg_solve_ex.default)
def linalg_solve_ex(a: jax.Array, b: jax.Array, *, left: bool = True, check_errors: bool = False) -> tuple[jax.Array, ...]:
    """Solve A X = B (or X A = B), and A's factorisation for the backward."""
    lu, marked = _marked_lu(a)
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    columns = b[..., None] if vector else b
    out = _lu_solve(lu, -marked, columns, False) if left else _adjoint(_lu_solve(lu, -marked, _adjoint(columns), True))
    return out[..., 0] if vector else out, lu, marked, _info(a)


def _log_determinant(lu: jax.Array, pivots: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sign and logarithm of the size of a determinant."""
    diagonal = jnp.diagonal(lu, axis1=-2, axis2=-1)
    swaps = (pivots != jnp.arange(1, pivots.shape[-1] + 1)).sum(-1) % 2
    signs = jnp.sign(diagonal).prod(-1) * (1 - 2 * swaps).astype(lu.dtype)
    return signs, jnp.log(jnp.abs(diagonal)).sum(-1)


@lowers(aten._linalg_det.default)
def linalg_det(a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Determinant, and the factorisation for the backward."""
    lu, marked = _marked_lu(a)
    swaps = (-marked != jnp.arange(1, marked.shape[-1] + 1)).sum(-1) % 2
    product = jnp.diagonal(lu, axis1=-2, axis2=-1).prod(-1)
    return product * (1 - 2 * swaps).astype(lu.dtype), lu, marked


@lowers(aten._linalg_slogdet.default)
def linalg_slogdet(a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Sign and logarithm of the determinant, and the factorisation for the backward."""
    lu, marked = _marked_lu(a)
    return (*_log_determinant(lu, -marked), lu, marked)


@lowers(aten.linalg_inv_ex.default)
def linalg_inv_ex(a: jax.Array, *, check_errors: bool = False) -> tuple[jax.Array, jax.Array]:
    """Inverse and status."""
    lu, pivots, _ = lax.linalg.lu(a)
    return _lu_solve(lu, pivots + 1, jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape), False), _info(a)


@lowers(aten.linalg_cholesky_ex.default)
def linalg_cholesky_ex(a: jax.Array, *, upper: bool = False, check_errors: bool = False) -> tuple[jax.Array, jax.Array]:
    """Cholesky factor and status; only the named triangle of `a` is read."""
    factor = lax.linalg.cholesky(_adjoint(a) if upper else a, symmetrize_input=False)
    return _adjoint(factor) if upper else factor, _info(a)


# torch.cholesky: PyTorch 2.15 has no such function
@lowers_named("aten::cholesky")
def cholesky(a: jax.Array, upper: bool = False) -> jax.Array:
    """Cholesky factor."""
    return linalg_cholesky_ex(a, upper=upper)[0]


@lowers(aten.cholesky_solve.default, aten._cholesky_solve_helper.default)
def cholesky_solve(b: jax.Array, factor: jax.Array, upper: bool = False) -> jax.Array:
    """Solve A X = B from A's Cholesky factor."""
    lower = _adjoint(factor) if upper else factor
    return _triangular(lower, _triangular(lower, b, lower=True), lower=True, adjoint=True)


@lowers(aten.cholesky_inverse.default)
def cholesky_inverse(factor: jax.Array, upper: bool = False) -> jax.Array:
    """The inverse of A from its Cholesky factor."""
    identity = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    return cholesky_solve(identity, jnp.triu(factor) if upper else jnp.tril(factor), upper)


@lowers(aten.linalg_solve_triangular.default)
def linalg_solve_triangular(
    a: jax.Array, b: jax.Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> jax.Array:
    """Solve with a triangular matrix."""
    return _triangular(a, b, lower=not upper, unit=unitriangular, left=left)


@lowers(aten.triangular_solve.default)
def triangular_solve(
    b: jax.Array, a: jax.Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Solve with a triangular matrix; also that matrix."""
    matrix = _transposed(a) if transpose else a
    out = _triangular(matrix, b, lower=upper == transpose, unit=unitriangular)
    return out, jnp.broadcast_to(a, (*out.shape[:-2], *a.shape[-2:]))


@lowers(aten.linalg_qr.default)
def linalg_qr(a: jax.Array, mode: str = "reduced") -> tuple[jax.Array, jax.Array]:
    """Orthogonal and triangular factor."""
    if mode == "r":
        return jnp.zeros(0, a.dtype), jnp.linalg.qr(a, mode="r")
    q, r = jnp.linalg.qr(a, mode=mode)
    return q, r


@lowers(aten._linalg_svd.default)
def linalg_svd(
    a: jax.Array, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Singular value decomposition."""
    if not compute_uv:
        return jnp.zeros(0, a.dtype), jnp.linalg.svd(a, compute_uv=False), jnp.zeros(0, a.dtype)
    if current().platform == "tpu" and a.size and a.dtype in (jnp.float32, jnp.complex64):
        return _svd_on_tpu(a, full_matrices)
    u, s, vh = jnp.linalg.svd(a, full_matrices=full_matrices)
    return u, s, vh


def _svd_on_tpu(a: jax.Array, full_matrices: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    """JAX's own way, traced now and not when the program is lowered: with 64-bit types off.

    With these on it multiplies floats by int64, which libtpu's compiler refuses, or ends the process over (0.0.50 does).
    """
    function = functools.partial(svd.svd, full_matrices=full_matrices)
    for _ in a.shape[:-2]:
        function = jax.vmap(function)
    with jax.enable_x64(False):
        return function(a)


@lowers(aten._linalg_eigh.default)
def linalg_eigh(a: jax.Array, triangle: str = "L", compute_v: bool = True) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues, ascending, and eigenvectors of a Hermitian matrix of which one triangle is read."""
    values, vectors = jnp.linalg.eigh(a, UPLO=triangle.upper(), symmetrize_input=False)
    return values, vectors if compute_v else jnp.zeros(0, a.dtype)


# PyTorch 2.14 and later
@lowers_named("aten::linalg_matrix_sqrth")
def linalg_matrix_sqrth(a: jax.Array) -> jax.Array:
    """The principal square root of a Hermitian matrix; only its lower triangle is read."""
    values, vectors = linalg_eigh(a)
    return (vectors * jnp.sqrt(values)[..., None, :]) @ _adjoint(vectors)


# PyTorch 2.14 and later
@lowers_named("aten::linalg_polar")
def linalg_polar(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """U with orthonormal columns and H, positive semidefinite, with A = U H."""
    u, s, vh = linalg_svd(a)
    return u @ vh, (_adjoint(vh) * s[..., None, :]) @ vh


@lowers(aten.linalg_pinv.atol_rtol_tensor)
def linalg_pinv(
    a: jax.Array, *, atol: jax.Array | None = None, rtol: jax.Array | None = None, hermitian: bool = False
) -> jax.Array:
    """Pseudo-inverse; singular values below the tolerance count as zero."""
    if hermitian:
        # reads the lower triangle only, as PyTorch does
        s, u = jnp.linalg.eigh(a, UPLO="L", symmetrize_input=False)
        vh = _adjoint(u)
    else:
        u, s, vh = linalg_svd(a)
    size = jnp.abs(s)
    largest = size.max(-1, keepdims=True, initial=0)
    # without a tolerance PyTorch derives one from the size, unless an absolute one is positive
    default = jnp.asarray(max(a.shape[-2:]) * jnp.finfo(s.dtype).eps, s.dtype)
    absolute = jnp.zeros((), s.dtype) if atol is None else atol.astype(s.dtype)[..., None]
    relative = jnp.where(absolute > 0, 0, default) if rtol is None else rtol.astype(s.dtype)[..., None]
    kept = size > jnp.maximum(absolute, relative * largest)
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1), 0)
    return jnp.matmul(_adjoint(vh) * inverse[..., None, :].astype(a.dtype), _adjoint(u), precision="highest")


def _on_host_only(name: str) -> None:
    platform = current().platform
    if platform != "cpu":
        raise ValueError(
            f"{name} of a general matrix is not available on {platform}. "
            "Use torch.linalg.eigh for symmetric matrices, or torch.linalg.svd."
        )


@lowers(aten.linalg_eig.default)
def linalg_eig(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues and eigenvectors; XLA has them on the CPU only."""
    _on_host_only("torch.linalg.eig")
    values, vectors = jnp.linalg.eig(a)
    return values, vectors


@lowers(aten._linalg_eigvals.default)
def linalg_eigvals(a: jax.Array) -> jax.Array:
    """Eigenvalues; XLA has them on the CPU only."""
    _on_host_only("torch.linalg.eigvals")
    return jnp.linalg.eigvals(a)


@lowers(aten.linalg_matrix_exp.default)
def linalg_matrix_exp(a: jax.Array) -> jax.Array:
    """Matrix exponential."""
    return expm(a)


@lowers(aten.linalg_householder_product.default)
def linalg_householder_product(a: jax.Array, tau: jax.Array) -> jax.Array:
    """The product of the reflections that `geqrf` gives."""
    return lax.linalg.householder_product(a, tau)


@lowers(aten._linalg_check_errors.default)
def linalg_check_errors(info: jax.Array, api_name: str, *, is_matrix: bool) -> Sequence[jax.Array]:
    """Nothing: a failure shows as NaN."""
    return ()


@lowers(aten.linalg_cross.default)
def linalg_cross(x: jax.Array, y: jax.Array, *, dim: int = -1) -> jax.Array:
    """Cross product along `dim`."""
    x, y = jnp.broadcast_arrays(x, y)
    return jnp.cross(x, y, axis=dim)
