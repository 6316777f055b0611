"""The accumulated states of a module's torchmetrics objects, which its `state_dict` does not have."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from ._results import reset_in_place


def is_metric(value: object) -> bool:
    """Whether a value is a torchmetrics object; torchmetrics is a guest and may not be installed."""
    torchmetrics = sys.modules.get("torchmetrics")
    return torchmetrics is not None and isinstance(value, torchmetrics.Metric)


def metrics_of(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """The metrics in a module, by path."""
    return ((name, part) for name, part in module.named_modules() if is_metric(part))


def metric_states(module: torch.nn.Module, without: list[Any]) -> dict[str, dict[str, Any]]:
    """States that the metrics have accumulated, by path.

    Args:
        module: where the metrics are.
        without: metrics to leave out, with those inside them.
    """
    left_out = {id(part) for metric in without for part in metric.modules()}
    return {
        name: {"states": {key: getattr(metric, key) for key in metric._defaults}, "updates": metric._update_count}
        for name, metric in metrics_of(module)
        if id(metric) not in left_out and metric._update_count
    }


def restore_metric_states(module: torch.nn.Module, states: dict[str, dict[str, Any]]) -> None:
    """Let the metrics go on accumulating from `metric_states`, in the tensors and lists that they have: programs know these."""
    metrics = dict(metrics_of(module))
    for name, found in states.items():
        metric = metrics.get(name)
        if metric is None:
            continue
        for key, value in found["states"].items():
            _take(metric, key, value)
        metric._update_count, metric._computed = found["updates"], None


def _take(metric: Any, key: str, value: torch.Tensor | list[torch.Tensor]) -> None:
    known = getattr(metric, key)
    if isinstance(value, list):
        known[:] = value
    elif known.shape == value.shape and known.dtype == value.dtype and not known.is_inference():
        with torch.no_grad():
            known.copy_(value)
    else:
        setattr(metric, key, value.clone())


def reset_metrics(module: torch.nn.Module) -> None:
    """Forget what the metrics in a module have accumulated."""
    for _, metric in metrics_of(module):
        if metric._update_count:
            reset_in_place(metric)
