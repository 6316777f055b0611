"""Regions of `torch.utils.checkpoint`: computed once more, with equal numbers, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiler.step_check import check_step, count
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import systolic

NOT_BEFORE = torch.ops.systolic.not_before.default
WIDTH = 32


class Blocks(nn.Module):
    """Blocks of three layers; `use_reentrant` None is a model without checkpointing."""

    def __init__(self, use_reentrant: bool | None, blocks: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.use_reentrant = use_reentrant

        def layer() -> list[nn.Module]:
            return [nn.Linear(WIDTH, WIDTH), nn.Dropout(dropout), nn.Tanh()]

        self.blocks = nn.ModuleList(nn.Sequential(*layer(), *layer(), *layer()) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            if self.use_reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.use_reentrant)  # type: ignore[assignment]
        return x


def batch(rows: int = 8) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(rows, WIDTH, requires_grad=True)


def trained(model: nn.Module, rows: int = 8) -> tuple[list[float], systolic.compiler.JitFunction[..., torch.Tensor]]:
    """Losses of three steps, and the compiled step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    @systolic.jit
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x.detach().requires_grad_()).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = batch(rows).detach()
    return [float(step(x)) for _ in range(3)], step


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_numbers_are_those_of_eager_pytorch(use_reentrant: bool) -> None:
    model = Blocks(use_reentrant)
    # a reentrant region refuses torch.autograd.grad
    if not use_reentrant:
        assert count(check_step(model, batch(), module=model), NOT_BEFORE) == 3
    losses, step = trained(model)
    assert count(step, NOT_BEFORE) == 3
    step.release()

    eager, expected = Blocks(use_reentrant), []
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss = eager(batch()).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        expected.append(float(loss.detach()))
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, eager.state_dict()[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_region_is_computed_twice_behind_a_barrier(use_reentrant: bool) -> None:
    plain, again = (trained(Blocks(kind))[1].stablehlo() for kind in (None, use_reentrant))
    assert "optimization_barrier" not in plain
    assert again.count("stablehlo.optimization_barrier") == 3
    # all three products of every block: the gradient of tanh needs its result
    assert again.count("stablehlo.dot_general") == plain.count("stablehlo.dot_general") + 3 * 3


def test_a_barrier_waits_for_the_gradient_that_arrives() -> None:
    _, step = trained(Blocks(False))
    barriers = [node for node in step.graph().nodes if node.target is NOT_BEFORE]
    places = {node: place for place, node in enumerate(step.graph().nodes)}
    assert all(len(node.args[0]) == 1 and node.args[1] for node in barriers)
    # the last block's is first, and the next one's waits for what that one gives
    gradients = [max(places[one] for one in node.args[1]) for node in barriers]
    assert gradients == sorted(gradients)
    assert all(places[before] < later for before, later in zip(barriers, gradients[1:], strict=False))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_dropout_draws_the_same_mask_again(use_reentrant: bool) -> None:
    losses, expected = (trained(Blocks(kind, dropout=0.3))[0] for kind in (use_reentrant, None))
    assert losses == expected


def test_regions_inside_regions() -> None:
    inner = Blocks(False, blocks=2)
    outer: Callable[[torch.Tensor], Any] = lambda x: checkpoint(inner, x, use_reentrant=False)  # noqa: E731
    step = check_step(lambda x: outer(outer(x).sin()), batch(), module=inner)
    # each outer region once, and in it each inner one
    assert count(step, NOT_BEFORE) == 2 * (1 + 2)


def test_a_sequence_in_segments() -> None:
    layers = nn.Sequential(*(module for block in Blocks(None, blocks=2).blocks for module in block))
    check_step(lambda x: checkpoint_sequential(layers, 2, x, use_reentrant=False), batch(), module=layers)


def test_autocast_holds_in_the_second_run() -> None:
    model = Blocks(False)

    def half(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float()

    check_step(half, batch(), module=model, rtol=2e-2, atol=2e-3)


def test_an_index_is_checked_once() -> None:
    table = nn.Embedding(10, WIDTH)
    step = check_step(
        lambda i, x: checkpoint(lambda i, x: (table(i) * x).tanh(), i, x, use_reentrant=False),
        torch.tensor([1, 2, 3, 4, 5, 6, 7, 9]),
        batch(),
        module=table,
    )
    assert len(step._called()[0].checks) == 1


def test_what_comes_of_the_state_alone_is_computed_once() -> None:
    table = nn.Parameter(torch.rand(4, WIDTH))
    step = systolic.jit(
        lambda: torch.autograd.grad(checkpoint(lambda w: w.sin().exp(), table, use_reentrant=False).sum(), table)
    )  # type: ignore[union-attr]
    torch.testing.assert_close(step()[0].cpu(), torch.cos(table.detach().cpu()) * table.detach().cpu().sin().exp())
    assert count(step, NOT_BEFORE) == 0


def test_a_program_without_regions_has_no_barrier() -> None:
    _, step = trained(Blocks(None))
    assert count(step, NOT_BEFORE) == 0
    assert "optimization_barrier" not in step.stablehlo()
