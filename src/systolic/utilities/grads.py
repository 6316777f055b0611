"""Norms of gradients."""

from __future__ import annotations

import torch
from torch import nn


def grad_norm(module: nn.Module, norm_type: float | str, group_separator: str = "/") -> dict[str, torch.Tensor]:
    """Compute the norm of each parameter's gradient, and that of all of them as one vector.

    In a hook inside the step, such as `on_before_optimizer_step`, the norms are part of the program.

    Args:
        module: parameters without a gradient are left out.
        norm_type: the p of the p-norm, above zero; "inf" gives the largest absolute value.
        group_separator: stands between the kind of norm and the parameter's name.

    Returns:
        By name, such as `grad_2.0_norm/layer.weight`, and `grad_2.0_norm_total`: tensors without dimensions. Empty where no
        parameter has a gradient.

    Raises:
        ValueError: `norm_type` is not above zero.

    Example:
        >>> import torch
        >>> layer = torch.nn.Linear(2, 1, bias=False)
        >>> layer(torch.tensor([[3.0, 4.0]])).sum().backward()
        >>> grad_norm(layer, 2)
        {'grad_2.0_norm/weight': tensor(5.), 'grad_2.0_norm_total': tensor(5.)}
    """
    kind = float(norm_type)
    if kind <= 0:
        raise ValueError(f"`norm_type` must be a number above zero, or 'inf'. Received: {norm_type}")
    gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    norms = {f"grad_{kind}_norm{group_separator}{name}": grad.detach().norm(kind) for name, grad in gradients.items()}
    if norms:
        norms[f"grad_{kind}_norm_total"] = torch.stack(list(norms.values())).norm(kind)
    return norms
