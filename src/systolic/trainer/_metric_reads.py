"""Logged values that a step reads: those of the steps before are its inputs, and what it has logged itself lies on top."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..compiler import is_capture_thread, require_watched
from ._stage import Stage

if TYPE_CHECKING:
    from ._run import Run

MEMBERS = {"callback_metrics": "metrics", "logged_metrics": "logged", "progress_bar_metrics": "finished"}
"""By the name of the Trainer's member: where the report has its values."""


class MetricReads:
    """Members of the Trainer with logged values, for whoever reads them, who may be a step.

    A step that is traced gets stand-ins for the values, which are brought to it before it runs: it waits for the one before.

    Args:
        run: the run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.of_trainer: dict[str, dict[str, Any]] = {}

    def of(self, member: str) -> dict[str, Any]:
        """The values by name.

        Args:
            member: "callback_metrics", "logged_metrics" or "progress_bar_metrics".
        """
        if self._run.symbols is None or not is_capture_thread():
            return getattr(self._run.reporting.settled(), MEMBERS[member])
        if member not in self.of_trainer:
            self.of_trainer[member] = {}
            self.refresh()
        require_watched("metrics", self, ("of_trainer",))
        return self.of_trainer[member] | self._of_this_step(member)

    def refresh(self) -> None:
        """Bring the values up to date for the step that comes now, if steps have read any."""
        if not self.of_trainer:
            return
        report = self._run.reporting.settled()  # host sync: the step reads what the one before it logged
        for member, held in self.of_trainer.items():
            _update(held, getattr(report, MEMBERS[member]))

    def _of_this_step(self, member: str) -> dict[str, Any]:
        """The values that the step has logged so far, by the names under which the member has them."""
        assert self._run.step_log is not None, "steps are traced with a log of their own"
        method, log = self._run.step_log
        found: dict[str, Any] = {}
        if method != Stage.FIT.step:
            return found  # single values of an evaluation are for loggers only
        for name, value in log.values.items():
            entry = log.results.entries[name]
            if not entry.on_step or not _shows(member, entry.logger, entry.prog_bar):
                continue
            found[entry.step_name] = value.item() if member == "progress_bar_metrics" else value
            if member == "callback_metrics":
                found[name] = value
        return found


def _shows(member: str, logger: bool, prog_bar: bool) -> bool:
    return {"logged_metrics": logger, "progress_bar_metrics": prog_bar}.get(member, True)


def _update(held: dict[str, Any], now: dict[str, Any]) -> None:
    """Give a step's dict these values, in the tensors that it has where it has them: new ones would be another state."""
    for name in held.keys() - now.keys():
        del held[name]
    for name, value in now.items():
        if isinstance(value, torch.Tensor):
            if name in held:
                held[name].copy_(value)
            else:
                held[name] = value.clone()
        else:
            held[name] = value
