"""Embeddings against eager PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op

import systolic

pytestmark = pytest.mark.thin(4)


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


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"include_last_offset": True}])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    weight, indices = torch.randn(5, 4, requires_grad=True), torch.tensor([1, 2, 4, 1, 0, 2, 2])
    offsets = torch.tensor([0, 3, 3, 5, 7] if "include_last_offset" in options else [0, 3, 3, 5])
    check_op(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, **options), weight, indices, offsets)


@pytest.mark.parametrize("padding_idx", [None, 2])
def test_weighted_bags(padding_idx: int | None) -> None:
    torch.manual_seed(0)
    weight, indices = torch.randn(5, 4, requires_grad=True), torch.tensor([[1, 2, 4], [1, 0, 2]])
    shares = torch.rand(2, 3, requires_grad=True)
    check_op(
        lambda w, s, i: F.embedding_bag(i, w, mode="sum", per_sample_weights=s, padding_idx=padding_idx),
        weight,
        shares,
        indices,
    )


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (0,)])
def test_rows_that_are_looked_up_are_scaled_down_in_the_table(shape: tuple[int, ...], norm_type: float) -> None:
    torch.manual_seed(0)
    eager = torch.nn.Embedding(5, 6, max_norm=1.5, norm_type=norm_type)
    compiled = copy.deepcopy(eager)

    run = systolic.jit(lambda indices: loss_of(compiled, indices))
    batches = [torch.randint(0, 5, shape) for _ in range(2)]
    for indices in batches:
        torch.testing.assert_close(run(indices).detach().clone(), loss_of(eager, indices))
    run.release()
    torch.testing.assert_close(compiled.weight, eager.weight)
    torch.testing.assert_close(compiled.weight.grad, eager.weight.grad)


def loss_of(table: torch.nn.Embedding, indices: torch.Tensor) -> torch.Tensor:
    loss = table(indices).square().sum()
    loss.backward()
    return loss.detach()
