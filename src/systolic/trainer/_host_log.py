"""`self.log` in hooks on the host: reduced over an epoch's batches as values of steps are, with the same names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from ..metrics import LogEntry


@dataclass
class _Total:
    """A value over the batches of an epoch so far."""

    entry: LogEntry
    value: float = 0.0
    weight: float = 0.0

    def add(self, value: float, weight: float) -> None:
        if self.entry.reduction == "mean":
            self.value += value * weight
        elif not self.weight:
            self.value = value
        elif self.entry.reduction == "sum":
            self.value += value
        else:
            # like torch's, and unlike Python's, these let nan through
            chosen = min if self.entry.reduction == "min" else max
            self.value = math.nan if math.isnan(value) else chosen(self.value, value)
        self.weight += weight

    def reduced(self) -> torch.Tensor:
        return torch.tensor(self.value / self.weight if self.entry.reduction == "mean" else self.value)


class HostLog:
    """Values that hooks logged since they were last asked for.

    Attributes:
        of_batch: for loggers: values of the current batch, by name.
        loaders: everything that evaluation hooks logged, by name; of which loader it is, or None.
    """

    def __init__(self) -> None:
        self.of_batch: dict[str, float] = {}
        self._once: dict[bool, dict[str, float]] = {True: {}, False: {}}
        self.loaders: dict[str, int | None] = {}
        self._entries: dict[tuple[str, str], LogEntry] = {}
        self._totals: dict[bool, dict[str, _Total]] = {True: {}, False: {}}

    def add_of_batch(self, entry: LogEntry, value: float, weight: float, in_training: bool) -> None:
        """Take a value that a hook logged for one batch."""
        if entry.on_step and entry.logger:
            self.of_batch[entry.step_name] = value
        if entry.on_epoch:
            self._totals[in_training].setdefault(entry.name, _Total(entry)).add(value, weight)
        self._note(entry, in_training)

    def add_once(self, entry: LogEntry, value: float, in_training: bool) -> None:
        """Take a value that stands for itself."""
        if entry.logger:
            self._once[in_training][entry.name] = value
        self._note(entry, in_training)

    def _note(self, entry: LogEntry, in_training: bool) -> None:
        self._entries.setdefault((entry.hook, entry.name), entry).require_same(entry)
        if not in_training and entry.logger:
            self.loaders[entry.epoch_name] = entry.loader

    def state_dict(self) -> dict[str, Any]:
        """Values that hooks of training logged in the epoch so far."""
        totals = self._totals[True].values()
        return {"totals": [(t.entry.as_plain(), t.value, t.weight) for t in totals], "once": dict(self._once[True])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the epoch that `state_dict` is of."""
        totals = [_Total(LogEntry(**entry), value, weight) for entry, value, weight in state["totals"]]
        self._totals[True] = {total.entry.name: total for total in totals}
        self._once[True] = dict(state["once"])

    def reduced(self, in_training: bool) -> list[tuple[LogEntry, torch.Tensor]]:
        """The values of an epoch that has ended, which are then forgotten."""
        totals, self._totals[in_training] = self._totals[in_training], {}
        return [(total.entry, total.reduced()) for total in totals.values()]

    def take_once(self, in_training: bool) -> dict[str, float]:
        """Values for the loggers that hooks logged which do not run for each batch."""
        taken, self._once[in_training] = self._once[in_training], {}
        return taken

    def take_batch(self) -> dict[str, float]:
        """Values of the current batch, for its row; the next batch starts without."""
        taken, self.of_batch = self.of_batch, {}
        return taken

    def take_loaders(self) -> dict[str, int | None]:
        """Names that evaluation hooks logged in the evaluation that has ended, and of which loaders."""
        taken, self.loaders = self.loaders, {}
        return taken
