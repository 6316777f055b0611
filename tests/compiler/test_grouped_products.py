"""Mixtures of experts: groups of rows with a matrix for each."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiler.step_check import check_step

import systolic
from systolic.runtime import jax_devices

ROWS, INPUTS, OUTPUTS, GROUPS = 16, 8, 24, 4
# an empty group, one of one row, and all
ENDS = [[3, 3, 4, 16], [0, 0, 0, 16], [4, 8, 12, 16]]


def each(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    groups = (torch.arange(ROWS)[:, None] >= ends).sum(1)
    return torch.einsum("si,sio->so", x, weight[groups])


@pytest.mark.parametrize("ends", ENDS)
def test_groups_of_rows(ends: list[int]) -> None:
    x, weight = torch.randn(ROWS, INPUTS, requires_grad=True), torch.randn(GROUPS, INPUTS, OUTPUTS, requires_grad=True)
    given = (x.bfloat16().detach().requires_grad_(), weight.bfloat16().detach().requires_grad_())
    offs = torch.tensor(ends, dtype=torch.int32)
    check_step(lambda x, w, e: F.grouped_mm(x, w, offs=e), *given, offs, rtol=2e-2, atol=2e-2)


def test_the_op_of_transformers_is_the_same_product_and_follows_the_groups() -> None:
    pytest.importorskip("transformers.integrations.moe")
    product = torch.ops.transformers.grouped_mm_fallback
    x, weight = torch.randn(ROWS, INPUTS, requires_grad=True), torch.randn(GROUPS, INPUTS, OUTPUTS, requires_grad=True)
    for ends in ENDS:
        check_step(product, x, weight, torch.tensor(ends, dtype=torch.int32), oracle=each)


class Mixture(torch.nn.Module):
    """Each row goes to its expert, as in transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Linear(INPUTS, GROUPS)
        self.experts = torch.nn.Parameter(torch.randn(GROUPS, INPUTS, OUTPUTS) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, dim=-1)
        flat, order = chosen.flatten().sort(stable=True)
        ends = torch.histc(flat.float(), bins=GROUPS, min=0, max=GROUPS - 1).cumsum(0).to(torch.int32)
        rows = order // 2
        product = torch.ops.transformers.grouped_mm_fallback(x[rows], self.experts, ends)
        product = product * weights.flatten()[order, None]
        return torch.zeros(len(x), OUTPUTS).index_add(0, rows, product)


@pytest.mark.parametrize("devices", [1, 8])
def test_a_mixture_trains_as_in_eager_pytorch(devices: int) -> None:
    pytest.importorskip("transformers.integrations.moe")

    def trained(compiled: bool) -> list[float]:
        torch.manual_seed(1)
        model = Mixture()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model(x) - x.repeat(1, 3)).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = systolic.jit(step, devices=jax_devices("cpu")[:devices]) if compiled else step
        return [float(run(torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(i)))) for i in range(3)]

    assert trained(True) == pytest.approx(trained(False), rel=1e-5)
