"""Logged values: of one step (traced), and reduced over an epoch (on the devices)."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from ..exceptions import MisconfigurationException

CAPACITY = 128
"""How many values with `on_epoch=True` one stage can log; all of them share one small array on the devices."""

Weighted = tuple[torch.Tensor, Any]
"""A logged value with its weight: the size of the batch, which may be a number of the trace."""

_REDUCTIONS: dict[Any, str] = {
    "mean": "mean", "sum": "sum", "min": "min", "max": "max", "avg": "mean",
    torch.mean: "mean", torch.sum: "sum", torch.min: "min", torch.max: "max", min: "min", max: "max", sum: "sum",
}  # fmt: skip


def reduction_name(reduce_fx: str | Callable[..., Any]) -> str:
    """The name of a reduction.

    Raises:
        MisconfigurationException: for other functions: they would need every value of the epoch.
    """
    try:
        return _REDUCTIONS[reduce_fx.lower() if isinstance(reduce_fx, str) else reduce_fx]
    except (KeyError, TypeError):
        raise MisconfigurationException(
            "Invalid value for argument `reduce_fx` of self.log. Expected 'mean', 'sum', 'min', 'max' or the torch "
            f"function of that name. Received: {reduce_fx!r}. Collect the values in a list and log their reduction in "
            "on_train_epoch_end instead."
        ) from None


_ARGUMENTS = ("on_step", "on_epoch", "prog_bar", "logger", "reduction")


@dataclass
class LogEntry:
    """Entry of a logged name: everything that is known of it.

    Attributes:
        name: the key given to `self.log`, with the dataloader's suffix.
        hook: the method that logs it.
        loader: the evaluation loader whose batches it is of, when there are several; None: of all of them.
        index: its column in the epoch totals; -1 when it has none.
        metric: the torchmetrics object, when one was logged.
    """

    name: str
    on_step: bool
    on_epoch: bool
    prog_bar: bool
    logger: bool
    reduction: str
    hook: str = ""
    loader: int | None = None
    index: int = -1
    metric: Any = None

    def as_plain(self) -> dict[str, Any]:
        """The entry without its metric, for a checkpoint."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "metric"}

    @property
    def step_name(self) -> str:
        """The name of single steps' values."""
        return self._forked("_step")

    @property
    def epoch_name(self) -> str:
        """The name of the epoch's value."""
        return self._forked("_epoch")

    def require_same(self, other: LogEntry) -> None:
        """Refuse another meaning of the name in the same method.

        Raises:
            MisconfigurationException: says which arguments differ.
        """
        if self.hook != other.hook:
            return
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in _ARGUMENTS}
        different = [f"{name}={one!r} and then {name}={two!r}" for name, (one, two) in pairs.items() if one != two]
        if different:
            raise MisconfigurationException(
                f"self.log({self.name!r}, ...) is called twice in {self.hook} with different arguments: "
                f"{', '.join(different)}. Use the same arguments, or another name."
            )
        if self.loader != other.loader:
            raise MisconfigurationException(
                f"self.log({self.name!r}, ..., add_dataloader_idx=False) is called in {self.hook} for loaders {self.loader} "
                f"and {other.loader}, whose values would be one. Leave add_dataloader_idx out, or use a name for each loader."
            )

    def _forked(self, ending: str) -> str:
        if not (self.on_epoch and self.on_step):
            return self.name
        name, marker, index = self.name.partition("/dataloader_idx_")
        return f"{name}{ending}{marker}{index}"


@dataclass
class StepLog:
    """Log of one step, while it runs (or is traced).

    Attributes:
        values: the newest value of each name.
        logged: every value of a name with its weight: as in Lightning, all that one method logs counts in the epoch's value,
            and of several methods the last one's.
        hooks: the method that logged a name last.
    """

    results: Results
    batch_size: Callable[[], int]
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    logged: dict[str, list[Weighted]] = field(default_factory=dict)
    hooks: dict[str, str] = field(default_factory=dict)

    def add(self, entry: LogEntry, value: object, batch_size: int | None, hook: str) -> None:
        """Record a value that a hook logs."""
        if entry.metric is not None:
            if entry.on_step and entry.metric._forward_cache is not None:
                self.values[entry.name] = entry.metric._forward_cache
            return
        self.values[entry.name] = as_scalar(entry.name, value)
        needs_weight = entry.on_epoch and entry.reduction == "mean"
        weight = (batch_size or self.batch_size()) if needs_weight else 1
        earlier = self.logged.get(entry.name, []) if self.hooks.get(entry.name) == hook else []
        self.logged[entry.name] = [*earlier, (self.values[entry.name], weight)]
        self.hooks[entry.name] = hook

    def finish(self) -> dict[str, torch.Tensor]:
        """Add the values to the epoch's totals; returns those that are reported per step."""
        self.results.accumulate(self.logged)
        return {name: v for name, v in self.values.items() if self.results.entries[name].on_step}


def as_scalar(name: str, value: object) -> torch.Tensor:
    """A logged value as a float32 scalar of its own, without gradient history: what was logged may be changed in place.

    Raises:
        ValueError: for anything that is not one number.
    """
    if isinstance(value, (numbers.Real, torch.SymInt, torch.SymFloat)):  # NumPy's scalars are such numbers, too
        number: Any = float(value) if isinstance(value, np.generic) else value
        return torch.scalar_tensor(number, dtype=torch.float32)
    if not isinstance(value, torch.Tensor):
        raise ValueError(
            f"`self.log({name}, {value})` was called: expected a number, a tensor with one element or a torchmetrics Metric. "
            f"Received: {type(value).__name__}."
        )
    if value.numel() != 1:
        raise ValueError(
            f"self.log({name!r}, ...) expected a tensor with one element. Received: shape {tuple(value.shape)}. "
            "Log its mean, or each element under a name of its own."
        )
    return value.detach().reshape(()).to(torch.float32, copy=True)


class Results:
    """All that one stage logged in an epoch.

    Attributes:
        state: holds `totals`, a (2, CAPACITY) tensor: reduced values, and their weights; part of the step's state.
    """

    def __init__(self) -> None:
        self.entries: dict[str, LogEntry] = {}
        self.state = SimpleNamespace(totals=torch.zeros(2, CAPACITY))
        self._columns = 0

    def entry(self, asked: LogEntry) -> LogEntry:
        """The entry of a name, the one asked for at its first appearance; later ones must agree with it."""
        found = self.entries.get(asked.name)
        if found is not None:
            found.require_same(asked)
        else:
            found = self.entries[asked.name] = asked
            if found.on_epoch and found.metric is None:
                found.index = self._columns
                self._columns += 1
                if self._columns > CAPACITY:
                    raise MisconfigurationException(f"More than {CAPACITY} names were logged with on_epoch=True.")
        return found

    def accumulate(self, logged: dict[str, list[Weighted]]) -> None:
        """Fold a step's values into the totals; runs inside the step."""
        chosen = {self.entries[n].index: n for n in logged if self.entries[n].index >= 0}
        if not chosen:
            return
        totals = self.state.totals
        width = max(chosen) + 1
        old = totals[:, :width].unbind(1)
        folded = {i: _folded(old[i], self.entries[name].reduction, logged[name]) for i, name in chosen.items()}
        columns = [folded[i] if i in folded else old[i] for i in range(width)]
        with torch.no_grad():
            totals[:, :width] = torch.stack(columns, dim=1)

    def epoch_values(self) -> dict[str, torch.Tensor]:
        """The reduced values by name; waits for the devices. Metrics are computed and reset by the caller."""
        totals = self.state.totals.detach().cpu()  # host sync: the epoch has ended
        values: dict[str, torch.Tensor] = {}
        for entry in self.entries.values():
            if entry.metric is not None and entry.on_epoch:
                values[entry.name] = entry.metric.compute()
            elif entry.index >= 0 and totals[1, entry.index] > 0:
                value, weight = totals[:, entry.index]
                values[entry.name] = value / weight if entry.reduction == "mean" else value.clone()
        return values

    def state_dict(self, module: torch.nn.Module) -> dict[str, Any]:
        """Values that were logged in the epoch so far; metrics by their path in the module."""
        paths = {id(part): name for name, part in module.named_modules()}
        entries = [{**entry.as_plain(), "metric": paths.get(id(entry.metric))} for entry in self.entries.values()]
        return {"entries": entries, "totals": self.state.totals.detach()}

    def load_state_dict(self, state: dict[str, Any], module: torch.nn.Module) -> None:
        """Go on with the epoch that `state_dict` is of."""
        parts = dict(module.named_modules())
        for saved in state["entries"]:
            metric = parts.get(saved["metric"]) if saved["metric"] is not None else None
            if metric is not None or saved["index"] >= 0 or not saved["on_epoch"]:
                self.entries[saved["name"]] = LogEntry(**{**saved, "metric": metric})
        self._columns = max((entry.index + 1 for entry in self.entries.values()), default=0)
        with torch.no_grad():
            self.state.totals.copy_(state["totals"])  # in place: another tensor would be another trace

    def reset(self) -> None:
        """Start a new epoch."""
        with torch.no_grad():
            self.state.totals.zero_()
        for entry in self.entries.values():
            if entry.metric is not None:
                reset_in_place(entry.metric)


def reset_in_place(metric: Any) -> None:
    """Reset a torchmetrics object and its children, keeping their tensor objects: new ones would be a new trace."""
    for part in metric.modules():
        states = getattr(part, "_defaults", None)
        if states is None:
            continue
        kept = {n: v for n in states if isinstance(v := getattr(part, n), torch.Tensor)}
        cache = part._forward_cache
        part.reset()
        for name, tensor in kept.items():
            fresh = getattr(part, name)
            if fresh.shape == tensor.shape and fresh.dtype == tensor.dtype:
                with torch.no_grad():
                    tensor.copy_(fresh)
                setattr(part, name, tensor)
        part._forward_cache = cache


def _folded(old: torch.Tensor, reduction: str, logged: list[Weighted]) -> torch.Tensor:
    total, seen = old[0], old[1]
    for value, weight in logged:
        if reduction == "mean":
            total, seen = total + value * weight, seen + weight
        elif reduction == "sum":
            total, seen = total + value, seen + 1
        else:
            extreme = torch.minimum(total, value) if reduction == "min" else torch.maximum(total, value)
            total, seen = torch.where(seen > 0, extreme, value), seen + 1
    return torch.stack([total, seen])
