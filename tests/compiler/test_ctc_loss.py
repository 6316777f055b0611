"""CTC as one op: values and gradients are eager PyTorch's, and lengths in tensors may change from step to step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import systolic as L

pytestmark = pytest.mark.thin(16, 3)

TARGETS = torch.tensor([[1, 2, 2, 3], [4, 1, 0, 0], [3, 0, 0, 0], [1, 1, 1, 1]])
JOINED = torch.tensor([1, 2, 2, 3, 4, 1, 3, 1, 1, 1, 1])
INPUTS, LABELS = (7, 5, 6, 5), (4, 2, 1, 4)
"""The last sequence is too short for its labels: its loss is infinite."""


def logits(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def value_and_gradient(x: torch.Tensor, *arguments: Any, normalised: bool = True, **options: Any) -> list[torch.Tensor]:
    x = x.detach().requires_grad_()
    loss = F.ctc_loss(x.log_softmax(-1) if normalised else x, *arguments, **options)
    weights = torch.arange(loss.numel(), dtype=loss.dtype).reshape(loss.shape) + 1
    return [loss.detach(), *torch.autograd.grad((loss * weights).sum(), x)]


def require_equal(x: torch.Tensor, *arguments: Any, **options: Any) -> None:
    expected = value_and_gradient(x, *arguments, **options)
    received = L.jit(lambda x: value_and_gradient(x, *arguments, **options))(x)
    for got, wanted in zip(received, expected, strict=True):
        assert got.dtype == wanted.dtype
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_as_in_eager_pytorch(reduction: str, zero_infinity: bool, joined: bool) -> None:
    targets = JOINED if joined else TARGETS
    options = {"reduction": reduction, "zero_infinity": zero_infinity}
    require_equal(logits(7, 4, 5), targets, INPUTS, LABELS, **options)
    require_equal(logits(7, 4, 5), targets, torch.tensor(INPUTS), torch.tensor(LABELS), **options)


def test_the_gradient_takes_its_input_for_a_log_softmax_as_pytorchs_does() -> None:
    require_equal(logits(7, 4, 5), TARGETS, INPUTS, LABELS, zero_infinity=True, normalised=False)


@pytest.mark.tables
def test_one_sequence_another_blank_and_nothing_to_say() -> None:
    require_equal(logits(6, 5), torch.tensor([1, 2, 1]), torch.tensor(6), torch.tensor(3))
    require_equal(logits(6, 2, 5), torch.tensor([[0, 2, 1], [3, 3, 0]]), (6, 5), (3, 2), blank=4)
    require_equal(logits(6, 2, 5), torch.tensor([[1, 2], [3, 3]]), (6, 5), (0, 2))


def test_in_a_module_with_double_precision() -> None:
    x = logits(7, 4, 5).double()
    expected = torch.nn.CTCLoss(zero_infinity=True)(x.log_softmax(-1), TARGETS, INPUTS, LABELS)
    got = L.jit(lambda x: torch.nn.CTCLoss(zero_infinity=True)(x.log_softmax(-1), TARGETS, INPUTS, LABELS))(x)
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-12, atol=0)


def test_other_lengths_are_the_same_program() -> None:
    step = L.jit(lambda x, inputs, labels: F.ctc_loss(x.log_softmax(-1), TARGETS, inputs, labels))
    for inputs, labels in ((INPUTS, (4, 2, 1, 2)), ((6, 7, 7, 7), (3, 2, 1, 4))):
        given = logits(7, 4, 5), torch.tensor(inputs), torch.tensor(labels)
        expected = F.ctc_loss(given[0].log_softmax(-1), TARGETS, inputs, labels)
        torch.testing.assert_close(step(*given).cpu(), expected, rtol=1e-5, atol=1e-6)
    assert len(step.compiles) == 1


def test_lengths_that_cannot_be() -> None:
    with pytest.raises(RuntimeError, match="at most 7, but got value 8"):
        L.jit(lambda x: F.ctc_loss(x, TARGETS, (8, 5, 6, 5), LABELS))(logits(7, 4, 5))
    with pytest.raises(RuntimeError, match="expected 4, received 3"):
        L.jit(lambda x: F.ctc_loss(x, TARGETS, (7, 5, 6), LABELS))(logits(7, 4, 5))
