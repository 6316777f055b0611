"""`torch.inference_mode` in a step that is traced: no gradients, as in a program nothing else comes of it."""

from __future__ import annotations

import torch

_outside = torch.is_inference_mode_enabled
_entered: list[tuple[bool, bool]] = []  # of each that is entered: whether it is on, and whether there were gradients before


def enter_inference(mode: torch.inference_mode) -> None:
    """`inference_mode.__enter__` while a step is traced; one that is off has gradients, as PyTorch's."""
    _entered.append((mode.mode, torch.is_grad_enabled()))
    torch.set_grad_enabled(not mode.mode)


def leave_inference(mode: torch.inference_mode, *error: object) -> None:
    """`inference_mode.__exit__` while a step is traced."""
    _, had_gradients = _entered.pop()
    torch.set_grad_enabled(had_gradients)


def is_inference() -> bool:
    """Whether the code that is traced is in inference mode."""
    return _entered[-1][0] if _entered else _outside()
