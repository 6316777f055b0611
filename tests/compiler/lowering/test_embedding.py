"""Embeddings against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from op_check import check_op


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}])
@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (0,)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_embedding(dtype: torch.dtype, shape: tuple[int, ...], options: dict[str, object]) -> None:
    torch.manual_seed(0)
    weight, indices = torch.randn(5, 6, requires_grad=True), torch.randint(0, 5, shape, dtype=dtype)
    check_op(lambda w, i: F.embedding(i, w, **options), weight, indices)


def test_bfloat16() -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 6).to(torch.bfloat16).requires_grad_()
    check_op(lambda w, i: F.embedding(i, w), weight, torch.tensor([1, 3, 1]), rtol=1e-2)
