"""Python computes with a real number that a value is, `loss.item()` or `float(loss)`: equal to eager PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiler.classifier_steps import require_equal_steps, step_of
from torch import nn

import systolic
from systolic.compiler import CaptureError

T = torch.Tensor

NUMBERS: dict[str, Callable[[float], float]] = {
    "max": lambda r: max(r, 1.2),
    "min of a whole number": lambda r: min(r, 1),
    "round": lambda r: round(r, 1),
    "round to a whole number": lambda r: round(r * 3),
    "int": lambda r: int(r * 10),
    "floor": lambda r: math.floor(r * 10),
    "ceil": lambda r: math.ceil(r * 10),
    "trunc": lambda r: math.trunc(r * 3),
    "exp": lambda r: math.exp(-r),
    "log": lambda r: math.log(r + 1),
    "log of a base": lambda r: math.log(r + 1, 2),
    "sqrt": lambda r: math.sqrt(r),
    "cos": lambda r: math.cos(r * math.pi),
    "hypot": lambda r: math.hypot(r, 1),
    "fabs": lambda r: math.fabs(r - 2),
    "erf": lambda r: math.erf(r) + math.erfc(r / 2),
    "near zero": lambda r: math.expm1(r) - math.log1p(r),
    "lgamma": lambda r: math.lgamma(r + 1),
    "atan2": lambda r: math.atan2(r, 2) + math.atan2(1, r),
    "copysign": lambda r: math.copysign(r, -1) + math.copysign(2, r),
    "fmod": lambda r: math.fmod(r * 3, 2) + math.fmod(-5, r),
    "hyperbolic": lambda r: math.asinh(r) + math.acosh(r + 1) + math.atanh(r / 9),
    "angles": lambda r: math.radians(r * 90) + math.degrees(r) / 90,
    "math.pow": lambda r: math.pow(r, 2),
    "powers": lambda r: r**2 + 2**r + r**0 + r**-1,
    "abs": lambda r: abs(r - 1.1),
    "sum": lambda r: sum([r, r * 2, 3]),
    "remainder by one": lambda r: r % 1,
    "remainder": lambda r: r % 0.3 + 5 % r,
    "whole part": lambda r: r // 0.1 + 5 // r,
    "divmod": lambda r: divmod(r * 3, 1)[1],
    "np.exp": lambda r: float(np.exp(-r)),
    "np.clip": lambda r: float(np.clip(r, 0, 1.1)),
    "sorted": lambda r: sorted([r, 1.1, 1.3])[1],
    "in a dict": lambda r: {"a": r}["a"],
    "isinstance": lambda r: 2.0 if isinstance(r, float) else 1.0,
    "truth": lambda r: 2.0 if r else 1.0,
    "isnan": lambda r: 0.5 if math.isnan(r) else 1.0,
    "isfinite": lambda r: 1.0 if math.isfinite(r) and not math.isinf(r) else 0.5,
    "np.isfinite": lambda r: 1.0 if np.isfinite(r) else 0.5,
    "is_integer": lambda r: 2.0 if r.is_integer() else 1.0,
    "if": lambda r: 2.0 if r > 1.15 else 1.0 if r > 1.05 else 0.5,
    "if between": lambda r: 2.0 if 1.0 < r < 1.1 else 1.0,
    "if the remainder by one": lambda r: 2.0 if (r * 10) % 1.0 < 0.5 else 1.0,
    "if the remainder": lambda r: 2.0 if (r * 10) % 3 < 1.5 else 1.0,
    "if the whole part": lambda r: 2.0 if (r * 10) // 2 == 5 else 1.0,
    "if the whole part of a negative": lambda r: 2.0 if -r // 1 == -2 else 1.0,
    "if int": lambda r: 2.0 if int(r * 10) == 11 else 1.0,
    "if round": lambda r: 2.0 if round(r, 1) == 1.1 else 1.0,
    "if exp": lambda r: 2.0 if math.exp(-r) < 0.33 else 1.0,
    "if sqrt": lambda r: 2.0 if math.sqrt(r) < 1.05 else 1.0,
    "if power": lambda r: 2.0 if 2**r < 2.2 else 1.0,
}
LOSSES: dict[str, Callable[[T, float], T]] = {
    **{name: lambda v, r, of=of: v.mean() * of(r) for name, of in NUMBERS.items()},
    "power of the loss": lambda v, r: v.mean() ** r + r ** v.mean(),
    "lerp": lambda v, r: torch.lerp(v, v * 2, r / 10).mean(),
    "clamp": lambda v, r: v.clamp(max=r).mean() + v.clamp(min=r).mean(),
    "compared with": lambda v, r: v[v > r].mean() + torch.where(v > r, v, v * 0.5).mean(),
    "tensor": lambda v, r: v.mean() * torch.tensor([r, 1.0]).sum() + (v * torch.full((16,), r)).mean(),
    "alpha": lambda v, r: torch.add(v, v, alpha=r).mean(),
    "value": lambda v, r: torch.addcmul(v, v, v, value=r / 10).mean(),
    "temperature": lambda v, r: F.softmax(v / r, 0).square().mean(),
    "index": lambda v, r: v[int(r * 5) % 16] + v.mean(),
    "range": lambda v, r: torch.stack([v[i] for i in range(int(r * 5))]).mean(),
}
ASKED: dict[str, Callable[[T], float]] = {"item": lambda v: v.mean().item(), "float": lambda v: float(v.detach().mean())}


@pytest.mark.thin(10)
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", LOSSES)
def test_a_step_equals_eager_pytorch(name: str, asked: str) -> None:
    loss_of, number = LOSSES[name], ASKED[asked]
    require_equal_steps(lambda v, y: loss_of(v, number(v)), torch.float32, 0.05, rtol=1e-4, atol=1e-6)


def test_a_number_made_of_text_is_refused_by_its_line() -> None:
    step = step_of(lambda v, y: v.mean() * float(f"{v.mean().item():.2f}"), nn.Linear(4, 3), 0.05)
    with pytest.raises(CaptureError, match=r"works on text that is formatted of a value[\s\S]*test_reals_in_python"):
        systolic.jit(step)(torch.randn(16, 4), torch.randint(0, 3, (16,)))


OF_TENSORS: dict[str, Callable[[T], float]] = {
    "sqrt": lambda x: math.sqrt(x.mean()),
    "exp": lambda x: math.exp(-x.mean()),
    "log of a base": lambda x: math.log(x.mean(), 2),
    "pow": lambda x: math.pow(x[0], 3),
    "hypot": lambda x: math.hypot(x[0], x[1:2]),
    "a whole number": lambda x: math.sqrt((x > 1).sum()),
    "floor": lambda x: math.floor(x[0] * 10),
    "isfinite": lambda x: 2.0 if math.isfinite(x[0]) else 1.0,
    "erf": lambda x: math.erf(x[0]),
    "atan2": lambda x: math.atan2(x[0], x[1]),
}


@pytest.mark.parametrize("name", OF_TENSORS)
def test_functions_of_math_take_tensors(name: str) -> None:
    def step(x: T) -> T:
        return x * OF_TENSORS[name](x)

    compiled = systolic.jit(step)
    for first in (1.25, 2.5, 0.75):
        x = torch.tensor([first, 2.0, 3.0])
        torch.testing.assert_close(compiled(x).cpu(), step(x), rtol=1e-5, atol=1e-6)
    assert compiled.compile_count == 1
