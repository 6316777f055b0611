"""Python does something with a whole number that a value is, `int(mask.sum())` or `.item()`: equal to eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from compiler.classifier_steps import require_equal_steps

T = torch.Tensor

USES: dict[str, Callable[[T, T, int], T]] = {
    "topk": lambda v, y, k: v.topk(k).values.mean(),
    "topk as a function": lambda v, y, k: torch.topk(v, k)[0].mean(),
    "zeros": lambda v, y, k: v.mean() + torch.zeros(k, 4).sum(),
    "arange": lambda v, y, k: v.mean() * torch.arange(k).sum(),
    "linspace": lambda v, y, k: v.mean() * torch.linspace(0, 1, k).sum(),
    "eye": lambda v, y, k: v.mean() * torch.eye(k).sum(),
    "full": lambda v, y, k: v.mean() * torch.full((k,), 2.0).sum(),
    "new_ones": lambda v, y, k: v.mean() * v.new_ones(k).sum(),
    "head": lambda v, y, k: v[:k].mean(),
    "tail": lambda v, y, k: v[k:].sum(),
    "head of sorted": lambda v, y, k: v.sort(descending=True).values[:k].mean(),
    "kthvalue": lambda v, y, k: v.kthvalue(k).values,
    "repeat": lambda v, y, k: v.repeat(k).mean(),
    "expand": lambda v, y, k: v[None].expand(k, -1).mean(),
    "narrow": lambda v, y, k: v.narrow(0, 0, k).mean(),
    "split": lambda v, y, k: v.split([k, 16 - k])[0].mean(),
    "split, the rest": lambda v, y, k: v.split([k, 16 - k])[1].sum(),
    "tensor_split": lambda v, y, k: torch.tensor_split(v, (k,))[0].mean(),
    "chunk": lambda v, y, k: v.chunk(k)[0].mean(),
    "roll": lambda v, y, k: (v.roll(k) * torch.arange(16)).mean(),
    "index": lambda v, y, k: v[k] + v.mean(),
    "one_hot": lambda v, y, k: (F.one_hot(y, k + 3).float().sum(1) * v).mean(),
    "unfold": lambda v, y, k: v.unfold(0, k, 1).mean(),
    "pad": lambda v, y, k: F.pad(v, (0, k)).sum(),
    "tril": lambda v, y, k: torch.tril(v[:, None] * v[None], k).mean(),
    "diagonal": lambda v, y, k: torch.diagonal(v[:, None] * v[None], k).mean(),
    "interpolate": lambda v, y, k: F.interpolate(v[None, None], size=k).mean(),
    "adaptive pooling": lambda v, y, k: F.adaptive_avg_pool1d(v[None, None], k).mean(),
    "range": lambda v, y, k: torch.stack([v[i] for i in range(k)]).mean(),
    "slice of a list": lambda v, y, k: torch.stack(list(v.unbind())[:k]).mean(),
    "condition": lambda v, y, k: v.mean() * 2 if k > 6 else v.mean(),
    "division": lambda v, y, k: v.sum() / k,
    "power": lambda v, y, k: v.mean() ** k,
    "real power": lambda v, y, k: v.mean() ** (k / 16) + torch.pow(v, k / 4).mean(),
    "min and max": lambda v, y, k: v[: min(k, 5)].mean() + v[: max(k, 5)].mean(),
    "remainder": lambda v, y, k: v[k % 7] + v.mean(),
    "whole part": lambda v, y, k: v[: k // 2 + 1].mean(),
    "cumsum": lambda v, y, k: v.cumsum(0)[k],
    "histc": lambda v, y, k: v.mean() * torch.histc(v.detach(), bins=k).sum(),
    "list": lambda v, y, k: v.mean() * torch.tensor([1.0] * k).sum(),
    "tensor": lambda v, y, k: v.mean() * torch.tensor(k),
    "float": lambda v, y, k: v.mean() * float(k),
}
ASKED: dict[str, Callable[[T], int]] = {
    "int": lambda y: int((y == 0).sum()) + 1,
    "item": lambda y: int((y == 0).sum().item() + 1),
    "item of a sum": lambda y: (y == 0).sum().item() + 1,  # type: ignore[return-value]
}


@pytest.mark.filterwarnings("ignore:.*decides otherwise")  # a program for each number is right here
@pytest.mark.thin(20)
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", USES)
def test_a_step_equals_eager_pytorch(name: str, asked: str) -> None:
    use, count = USES[name], ASKED[asked]
    classes = require_equal_steps(lambda v, y: use(v, y, count(y)), torch.float64, 0.1, rtol=1e-9, atol=1e-12)
    assert len({int((y == 0).sum()) for y in classes}) > 2
