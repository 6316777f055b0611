"""Ten compiled steps equal ten steps of eager PyTorch, for many models and optimizers (contract C9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from model_zoo import CASES, OPTIMIZERS, Case
from torch import nn

import systolic

STEPS = 10
TOLERANCE = 1e-5


def step_of(case: Case, model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., torch.Tensor]:
    loss_of, clip = case.loss, case.clip

    def step(*batch: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def compare(case: Case, optimizer: str, most_programs: int = 2) -> None:
    """Train one model eagerly and one compiled; every loss and every tensor must agree."""
    make = OPTIMIZERS[optimizer]
    eager, compiled = case.model(), case.model()
    eager_optimizer, compiled_optimizer = make(eager), make(compiled)
    eager_step = step_of(case, eager, eager_optimizer)
    compiled_step = systolic.jit(step_of(case, compiled, compiled_optimizer))
    for number, batch in enumerate(case.batches(STEPS)):
        want, got = eager_step(*batch), compiled_step(*batch)
        assert abs(got.item() - want.item()) <= TOLERANCE * abs(want.item()), f"loss of step {number}: {got} != {want}"
    reasons = [c.reason for c in compiled_step.compiles]
    assert len(reasons) <= most_programs, reasons
    differing = [text for text in differences(eager, compiled) if text]
    differing += [text for text in state_differences(eager_optimizer, compiled_optimizer) if text]
    assert not differing, "\n".join(differing)


def differences(eager: nn.Module, compiled: nn.Module) -> list[str]:
    found = []
    for kind in ("named_parameters", "named_buffers"):
        pairs = zip(getattr(eager, kind)(), getattr(compiled, kind)(), strict=True)
        found += [difference(name, want, got) for (name, want), (_, got) in pairs]
    return found


def state_differences(eager: torch.optim.Optimizer, compiled: torch.optim.Optimizer) -> list[str]:
    want, got = eager.state_dict()["state"], compiled.state_dict()["state"]
    assert want.keys() == got.keys()
    found = []
    for index, state in want.items():
        assert state.keys() == got[index].keys()
        found += [kind_difference(f"state {index}.{name}", value, got[index][name]) for name, value in state.items()]
    return found


def kind_difference(name: str, want: object, got: object) -> str:
    """Optimizers keep scalars as 0-dim tensors, as numbers, or not at all; the compiled ones must keep the same kind."""
    if not isinstance(want, torch.Tensor):
        return "" if want == got else f"{name}: {got} instead of {want}"
    assert isinstance(got, torch.Tensor)
    # moments square the gradients, and so double their relative error
    return difference(name, want, got, 2 * TOLERANCE)


def difference(name: str, want: torch.Tensor, got: torch.Tensor, tolerance: float = TOLERANCE) -> str:
    assert want.shape == got.shape
    assert want.dtype == got.dtype
    want, got = want.detach(), got.detach().cpu()
    if not want.is_floating_point():
        return "" if torch.equal(want, got) else f"{name}: {got} instead of {want}"
    error, size = (got - want).abs().max().item(), want.abs().max().item()
    return "" if error <= tolerance * size else f"{name}: {error / size if size else error:.2e} (size {size:.2e})"


# Adam and its kin divide a gradient by its size. Where a gradient is zero but for rounding (the bias of attention keys,
# which GPT-2 joins with others in one tensor; a shift that a later BatchNorm takes out wherever the ReLU between them is
# open) that makes a full step of the noise. With AdamW, one step of float32 eager PyTorch is off the same step in
# float64 by 6e-6 (weight_norm), 2e-5 to 7e-5 (unusual_convolutions, resnet18, GPT-2), 7e-3 (conv3d) and 0.3
# (cnn_batch_norm) of the largest weight. These are trained by SGD, which keeps small gradients small.
WITH_SGD = {
    "cnn_batch_norm",
    "conv3d",
    "hugging_face_gpt2",
    "resnet18",
    "unusual_convolutions",
    "weight_norm",
}


@pytest.mark.thin(20, 5)
@pytest.mark.parametrize("name", CASES)
def test_models(name: str) -> None:
    compare(CASES[name], "sgd_nesterov" if name in WITH_SGD else "adamw")


@pytest.mark.thin(20, 5)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    "name", ["mlp", "VariationalAutoencoder", *(pytest.param(n, marks=pytest.mark.slow) for n in ("GraphNet", "hooks"))]
)
def test_optimizers(name: str, optimizer: str) -> None:
    # Lion counts its calls: made in the first step, frozen in the second, found to vary in the third
    compare(CASES[name], optimizer, most_programs=3 if optimizer == "lion" else 2)
