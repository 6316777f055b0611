"""Cross-entropy is one op, and equals PyTorch's two."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiler.step_check import check_step, count

import systolic
from systolic.compiler.lowering._context import LoweringContext, lowering_context
from systolic.compiler.passes import _cross_entropy

pytestmark = pytest.mark.thin(2)

aten = torch.ops.aten
FORWARD = torch.ops.systolic.cross_entropy.default
BACKWARD = torch.ops.systolic.cross_entropy_backward.default

KINDS: dict[str, dict[str, Any]] = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "ignored targets": {"ignore_index": 2},
    "weights": {"weight": torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0])},
    "weights and ignored targets": {"weight": torch.tensor([0.5, 2.0, 0.3, 1.0, 3.0]), "ignore_index": 1},
}
SHAPES = {"rows": (7, 5), "images": (3, 5, 4, 2), "one row": (5,)}


def some(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 5, (shape[0], *shape[2:]) if len(shape) > 1 else (), generator=draw)
    return (torch.randn(shape, generator=draw) * 5).requires_grad_(), targets


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_one_op_forward_and_one_backward(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    logits, targets = some(shape)
    compiled = check_step(lambda x, y: F.cross_entropy(x, y, **options), logits, targets)
    assert (count(compiled, FORWARD), count(compiled, BACKWARD)) == (1, 1)
    assert not count(compiled, aten._log_softmax.default)


def test_large_logits_do_not_overflow() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-float("inf"), 3.0, 2.0]], requires_grad=True)
    check_step(lambda x: F.cross_entropy(x, torch.tensor([1, 1])), logits)


def test_half_precision_logits() -> None:
    logits, targets = some((64, 5))
    check_step(lambda x, y: F.cross_entropy(x.bfloat16().float(), y), logits, targets)


def test_a_log_softmax_that_is_used_otherwise_stays() -> None:
    logits, targets = some((7, 5))

    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        log_probabilities = F.log_softmax(x, 1)
        return F.nll_loss(log_probabilities, y), log_probabilities.exp().square().sum()

    compiled = check_step(both, logits, targets)
    assert count(compiled, aten._log_softmax.default) == 1


def test_a_log_softmax_over_another_dimension_is_none() -> None:
    logits, targets = some((7, 5))
    compiled = check_step(lambda x, y: F.nll_loss(F.log_softmax(x, 0), y), logits, targets)
    assert count(compiled, FORWARD) == 0


@pytest.mark.parametrize("shape", [(7, 5), (3, 5, 4, 2)])
def test_the_form_for_tpu_equals_the_other_one(shape: tuple[int, ...]) -> None:
    logits, targets = some(shape)
    arguments = (jnp.asarray(logits.detach().numpy()), jnp.asarray(targets.numpy()), None, 1, 3)
    results = []
    for platform in ("cpu", "tpu"):
        with lowering_context(LoweringContext(platform=platform)):
            results.append(jax.jit(_cross_entropy._cross_entropy, static_argnums=(3, 4))(*arguments))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


@pytest.mark.skipif(not hasattr(torch.nn.functional, "linear_cross_entropy"), reason="PyTorch has it since 2.13")
def test_chunks_are_left_to_the_compiler() -> None:
    functional: Any = torch.nn.functional
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2)  # pyright: ignore

    def step(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weight = weight.detach().requires_grad_()
        loss = functional.linear_cross_entropy(x, weight, target, options=options)
        loss.backward()
        assert weight.grad is not None
        return loss.detach(), weight.grad

    given = torch.randn(6, 4), torch.randn(5, 4), torch.tensor([0, 4, 2, -100, 1, 3])
    for mine, theirs in zip(systolic.jit(step)(*given), step(*given), strict=True):
        torch.testing.assert_close(mine, theirs)
