"""When two results are equal: the rules that docs/ops.md states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo.core import OpInfo

from systolic.runtime._dtypes import jax_dtype

RELATIVE = 1e-5
BFLOAT16 = 1e-2
EPSILON = float(np.finfo(np.float32).eps)
ROUNDING = 2.0
"""How much further from float64 than eager PyTorch a float32 result may be, in the second rule."""

Tolerance = tuple[float, float]


def tolerance(op: OpInfo, dtype: torch.dtype) -> Tolerance:
    """Relative (to the largest element) and absolute tolerance: ours, or PyTorch's own for this op if larger."""
    relative, absolute = BFLOAT16 if dtype == torch.bfloat16 else RELATIVE, 0.0
    for info in op.decorators or ():
        if getattr(info, "device_type", None) not in (None, "cpu") or not getattr(info, "active_if", True):
            continue
        for decorator in getattr(info, "decorators", [info]):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                relative = max(relative, decorator.d[dtype].rtol)
                absolute = max(absolute, decorator.d[dtype].atol)
    return relative, absolute


def same_kinds(expected: Sequence[Any], received: Sequence[Any]) -> str:
    """What differs in number, dtype or shape of the results; empty when nothing does."""
    if len(expected) != len(received):
        return f"{len(received)} results, expected {len(expected)}"
    for number, (want, got) in enumerate(zip(expected, received, strict=True)):
        if isinstance(want, torch.Tensor):
            if not isinstance(got, np.ndarray):
                return f"result {number}: {type(got).__name__}, expected a tensor"
            if jax_dtype(want.dtype) != got.dtype:
                return f"result {number}: dtype {got.dtype}, expected {want.dtype}"
            if tuple(want.shape) != got.shape:
                return f"result {number}: shape {got.shape}, expected {tuple(want.shape)}"
        elif want != got and want is not got:
            return f"result {number}: {got!r}, expected {want!r}"
    return ""


def difference(expected: Sequence[Any], received: Sequence[Any], allowed: Tolerance) -> str:
    """What differs between two lists of results; empty when they agree."""
    kinds = same_kinds(expected, received)
    if kinds:
        return kinds
    for number, (want, got) in enumerate(zip(expected, received, strict=True)):
        if isinstance(want, torch.Tensor):
            found = _array_difference(array(want), array(got), allowed)
            if found:
                return f"result {number}: {found}"
    return ""


def _array_difference(want: np.ndarray, got: np.ndarray, allowed: Tolerance) -> str:
    if want.dtype.kind not in "fc":
        wrong = int((want != got).sum())
        return f"{wrong} of {want.size} elements differ" if wrong else ""
    settled = np.isfinite(want)
    if not np.array_equal(settled, np.isfinite(got)) or not np.array_equal(want[~settled], got[~settled], equal_nan=True):
        return "other infinities or NaNs"
    scale = _largest(want[settled])
    error = _largest(want[settled] - got[settled])
    relative, absolute = allowed
    return "" if error <= relative * scale + absolute else f"off by {error / (scale or 1):.1e} of the largest element"


def as_exact(exact: Sequence[Any], expected: Sequence[Any], received: Sequence[Any], inputs: Sequence[Any]) -> bool:
    """Whether every float result is as close to the float64 one as eager PyTorch's float32 result is."""
    # what cancels out leaves one rounding of what went in
    rounding = EPSILON * max((_largest(array(x)) for x in inputs if x.is_floating_point()), default=0.0)
    for truth, want, got in zip(exact, expected, received, strict=True):
        if not isinstance(want, torch.Tensor):
            continue
        theirs, ours, true = array(want), array(got), array(truth)
        if not np.array_equal(np.isfinite(theirs), np.isfinite(ours)) or theirs.shape != true.shape:
            return False
        settled = np.isfinite(theirs) & np.isfinite(true)
        limit = ROUNDING * _largest(theirs[settled] - true[settled]) + RELATIVE * _largest(true[settled])
        if _largest(ours[settled] - true[settled]) > limit + rounding:
            return False
    return True


def array(value: Any) -> np.ndarray:
    """A tensor or array in double precision, integers as they are."""
    if isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj().resolve_neg()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy(force=True)
    value = np.asarray(value)
    if value.dtype.kind == "c":
        return value.astype(np.complex128)
    return value if value.dtype.kind in "biu" else value.astype(np.float64)


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values).max()) if values.size else 0.0


def distribution(eager: Callable[[int], list[Any]], compiled: Callable[[int], list[Any]], draws: int) -> tuple[str, str]:
    """Compare two random functions by kind, and by the mean and the spread of their results over many draws."""
    wanted, gotten = [eager(i) for i in range(draws)], [compiled(i) for i in range(draws)]
    kinds = same_kinds(wanted[0], gotten[0])
    if kinds:
        return "wrong", kinds
    tensors = [array(x) for x in wanted[0] if isinstance(x, torch.Tensor)]
    noise = RELATIVE * max((_largest(np.nan_to_num(x)) for x in tensors), default=0.0)
    for number, (want, got) in enumerate(zip(zip(*wanted, strict=True), zip(*gotten, strict=True), strict=True)):
        if not isinstance(want[0], torch.Tensor) or not want[0].numel():
            continue
        left, right = _flat(want), _flat(got)
        scale = max(float(np.median(np.abs(left))), noise) or 1.0
        # a bounded function of the values has moments, whatever the distribution
        left, right = np.arctan(left / scale), np.arctan(right / scale)
        for label, moment in (("mean", np.mean), ("spread", np.std)):
            if not _agree(moment(left, axis=1), moment(right, axis=1)):
                return "wrong", f"result {number}: other {label} over {draws} draws"
    return "random", ""


def _flat(results: Sequence[Any]) -> np.ndarray:
    rows = np.stack([np.asarray(array(r)).reshape(-1) for r in results])
    rows = np.concatenate([rows.real, rows.imag], axis=1) if rows.dtype.kind == "c" else rows.astype(np.float64)
    return np.nan_to_num(rows)


def _agree(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two samples of a statistic have the same mean, at five standard errors."""
    error = np.sqrt((left.var() + right.var()) / len(left))
    return bool(abs(left.mean() - right.mean()) <= 5 * error + 1e-6)
