"""`detect_anomaly=True`: stop at the first loss or gradient that is not finite."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def finiteness(loss: torch.Tensor, module: nn.Module) -> dict[str, Any]:
    """The loss, and whether it and each gradient are finite; part of the step."""
    gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    with torch.no_grad():
        return {
            "loss": loss.detach(),
            "gradients": {name: torch.isfinite(gradient).all() for name, gradient in gradients.items()},
        }


def require_finite(found: dict[str, Any], batch_idx: int, epoch: int, global_step: int) -> None:
    """Raise for what `finiteness` found; waits for the step.

    Raises:
        FloatingPointError: the loss or a gradient is NaN or infinite; names the step and the parameters.
    """
    if not found:
        return
    where = f"at batch_idx {batch_idx}, epoch {epoch}, global step {global_step}"
    loss = float(found["loss"])  # host sync: detect_anomaly asks for the value of every step
    broken = [name for name, finite in found["gradients"].items() if not finite]
    if torch.isfinite(torch.tensor(loss)) and not broken:
        return
    first = ", ".join(broken[:5]) + (f" and {len(broken) - 5} more" if len(broken) > 5 else "")
    gradients = f" Gradients that are not finite: {first}." if broken else ""
    raise FloatingPointError(
        f"detect_anomaly: the loss is {loss} {where}.{gradients} Look for a logarithm or square root of zero, a "
        "division by zero, or a learning rate that is too high. To find the operation, run with Trainer(compile=False) "
        "under torch.autograd.detect_anomaly()."
    )
