"""The accumulated states of a module's torchmetrics objects, which its `state_dict` does not have."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch


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
    """Let the metrics go on accumulating from `metric_states`."""
    metrics = dict(metrics_of(module))
    for name, found in states.items():
        metric = metrics.get(name)
        if metric is None:
            continue
        for key, value in found["states"].items():
            setattr(metric, key, value.clone() if isinstance(value, torch.Tensor) else list(value))
        metric._update_count, metric._computed = found["updates"], None
