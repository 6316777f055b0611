"""`torch.linalg.lstsq` in other ops: PyTorch says nothing of its shapes, since its last result is empty or not by a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...utilities._torch_internals import OpOverload

Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def rule_for_least_squares(op: OpOverload) -> Callable[..., Any] | None:
    """The rule of the op that solves such problems; None for any other."""
    return least_squares if op is torch.ops.aten.linalg_lstsq.default else None


def least_squares(a: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None) -> Results:
    """The solutions of least norm, by the pseudo-inverse, and the ranks, as LAPACK's `gelsy` has them on its own terms.

    Args:
        a: float[*batch, m, n].
        b: float[*batch, m, k], or float[*batch, m] for problems with one right side each.
        rcond: None, or anything for `gels`; what `gelsy` compares with it are no singular values.
        driver: of LAPACK; `gelsy`, PyTorch's default on CPUs, or `gels` for matrices of full rank.

    Returns:
        float[*batch, n, k]; residuals, which `gels` gives for more equations than unknowns; the ranks, which it does not give;
        and no singular values.
    """
    if driver != "gels" and (driver not in (None, "gelsy") or rcond is not None):
        return NotImplemented  # others give residuals or none, by the ranks
    is_vector = b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]
    sides = b.unsqueeze(-1) if is_vector else b
    tolerance = torch.finfo(a.dtype).eps * max(a.shape[-2:])
    solution = torch.linalg.pinv(a, rtol=tolerance) @ sides
    residuals, ranks = a.new_empty(0, dtype=a.abs().dtype), a.new_empty(0, dtype=torch.int64)
    if driver != "gels":
        ranks = torch.linalg.matrix_rank(a, rtol=tolerance)
    elif a.shape[-2] > a.shape[-1]:
        residuals = (a @ solution - sides).abs().square().sum(-2)
    return solution.squeeze(-1) if is_vector else solution, residuals, ranks, a.new_empty(0, dtype=a.abs().dtype)
