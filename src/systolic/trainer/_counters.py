"""How far training has come, in numbers that outlive a run, and what was set on Lightning's progress of the loops."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..exceptions import MisconfigurationException

if TYPE_CHECKING:
    from ._run import Run

Path = tuple[str, ...]
"""Of a number in Lightning's account of its loops: `("epoch_progress", "current", "completed")`."""

_COMPLETED: Path = ("epoch_progress", "current", "completed")
_PROCESSED: Path = ("epoch_progress", "current", "processed")
_BATCHES: Path = ("epoch_loop.batch_progress", "total", "ready")
STEPS: dict[bool, Path] = {
    True: ("epoch_loop.automatic_optimization.optim_progress", "optimizer", "step", "total", "completed"),
    False: ("epoch_loop.manual_optimization.optim_step_progress", "total", "completed"),
}
"""Where optimizer steps are counted, by whether optimization is automatic."""


@dataclass
class Counters:
    """How far training has come. Every run goes on from where the last fit was, as in Lightning.

    Attributes:
        epoch: the current one, from 0.
        global_step: optimizer steps.
        batches_that_stepped: batches after which an optimizer stepped.
        batches_seen: training batches.
        scheduler_steps: of all schedulers.
        in_epoch: whether the current epoch has begun.
        automatic: whether `global_step` counts steps of automatic optimization.
        adjustments: what numbers of Lightning's account are more than these counters say, since somebody set them.
        loaded: an account that the next fit goes on from.
    """

    epoch: int = 0
    global_step: int = 0
    batches_that_stepped: int = 0
    batches_seen: int = 0
    scheduler_steps: int = 0
    in_epoch: bool = False
    automatic: bool = True
    adjustments: dict[Path, int] = field(default_factory=dict)
    loaded: dict[str, Any] | None = None

    @property
    def epochs_done(self) -> int:
        """How many epochs a run that continues from here need not repeat; of a started one the rest is left out."""
        return self.epoch + self.in_epoch

    @property
    def epochs_processed(self) -> int:
        """By how many epochs Lightning finds that it has reached `max_epochs`: `epoch` unless somebody set another number."""
        return self.epoch + self.adjustments.get(_PROCESSED, 0)

    def next(self) -> Counters:
        """Those of the run that follows."""
        found = dataclasses.replace(self, in_epoch=False, adjustments=dict(self.adjustments))
        found.forget_epoch()
        return found

    def count(self, automatic: bool) -> None:
        """From now on `global_step` is of one kind of optimization: Lightning counts both."""
        if automatic != self.automatic:
            others, self.adjustments[STEPS[self.automatic]] = self.adjustments.pop(STEPS[automatic], 0), self.global_step
            self.global_step, self.automatic = others, automatic

    def forget_epoch(self) -> None:
        """An epoch begins: progress within the last one is no more."""
        for path in [path for path in self.adjustments if _is_within_epoch(path)]:
            del self.adjustments[path]

    def may_stop(self, min_steps: int | None, min_epochs: int | None) -> bool:
        """Whether there were as many steps and epochs as there have to be at least."""
        return self.global_step >= (min_steps or 0) and self.epochs_processed >= (min_epochs or 0)


def _is_within_epoch(path: Path) -> bool:
    return "current" in path and path[0] != "epoch_progress" or path[0] == "epoch_loop.val_loop.batch_progress"


def adjusted(counters: Counters, account: dict[str, Any], at: Path = ()) -> dict[str, Any]:
    """An account with the numbers that were set.

    Args:
        counters: these know them.
        account: the one that the counters give.
        at: the path of the part that `account` is.
    """
    found: dict[str, Any] = {}
    for name, value in account.items():
        path = (*at, name)
        if type(value) is dict:
            found[name] = adjusted(counters, value, path) if name != "state_dict" else value
        else:
            found[name] = value + counters.adjustments.get(path, 0) if type(value) is int else value
    return found


def numbers(account: dict[str, Any], at: Path = ()) -> Iterator[tuple[Path, int]]:
    """All numbers of an account that can be set."""
    for name, value in account.items():
        if type(value) is dict and not name.endswith("state_dict"):
            yield from numbers(value, (*at, name))
        elif type(value) is int:
            yield (*at, name), value


def put(run: Run, path: Path, value: int) -> None:
    """Set a number of Lightning's account; no other number in it changes.

    Raises:
        MisconfigurationException: the number is of the batches of an epoch that is under way.
    """
    counters = run.counters
    before = dict(numbers(run.trainer.fit_loop.state_dict()))
    change = value - before[path]
    if change and counters.in_epoch and _is_within_epoch(path):
        raise MisconfigurationException(
            f"trainer.fit_loop: {'.'.join(path)} = {value} is not possible while an epoch is under way: its batches are read "
            "ahead. Set it between epochs, or end the epoch with trainer.should_stop."
        )
    if path == _COMPLETED:
        counters.epoch += change
    elif path == STEPS[counters.automatic]:
        counters.global_step += change
    elif path == _BATCHES:
        counters.batches_seen += change
    before[path] = value
    for one, shown in numbers(run.trainer.fit_loop.state_dict()):
        if shown != before[one]:
            counters.adjustments[one] = counters.adjustments.get(one, 0) + before[one] - shown


def catch_up(run: Run) -> None:
    """The current epoch becomes the number of those that were processed, where somebody has set it apart."""
    if run.counters.epochs_processed != run.counters.epoch:
        put(run, _COMPLETED, run.counters.epochs_processed)


def load(run: Run, account: dict[str, Any]) -> None:
    """Take over an account of Lightning's; the next fit goes on from it."""
    known = dict(numbers(run.trainer.fit_loop.state_dict()))
    for path, value in numbers(account):
        if path in known:
            put(run, path, value)
    run.counters.batches_that_stepped = account["epoch_loop.state_dict"]["_batches_that_stepped"]
    run.counters.loaded = copy.deepcopy(account)


def is_within_epoch(account: dict[str, Any] | None) -> bool:
    """Whether an account is of a moment at which an epoch was under way."""
    current = account["epoch_progress"]["current"] if account is not None else None
    return current is not None and current["started"] != current["completed"]
