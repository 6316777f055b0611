"""Learning rate schedulers in a step: `sch.step()` is done on the host after every step, and what a step reads is watched.

A scheduler is Python that counts its steps and sets a number of the optimizer's. Called while a step is traced it would count
that one step only, and its formula would be frozen with that count.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from .._capture_thread import replaced
from .._errors import is_user_frame
from ._host_calls import recorded_by_all
from ._watched_objects import require_watched

_READ = frozenset(
    {"last_epoch", "_last_lr", "get_last_lr", "_step_count", "best", "num_bad_epochs", "cooldown_counter", "T_cur"}
)
"""What user code reads of a scheduler that changes with its steps."""


@contextlib.contextmanager
def schedulers_on_the_host() -> Iterator[None]:
    """Inside the block, schedulers step after the step that is traced, and reading one makes the step depend on it."""
    with contextlib.ExitStack() as stack:
        for kind in _kinds(LRScheduler):
            if "step" in vars(kind):
                stack.enter_context(replaced(kind, "step", _after_the_step(vars(kind)["step"])))
        stack.enter_context(replaced(LRScheduler, "__getattribute__", _noted))
        yield


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _kinds(inner)


def _after_the_step(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: LRScheduler, *args: Any, **kwargs: Any) -> None:
        # `super().step()` of the user's own scheduler is called after the step, where this is no replacement
        recorded_by_all(original, self, *args, **kwargs)

    return step


def _noted(self: LRScheduler, name: str) -> Any:
    if name in _READ and is_user_frame(sys._getframe(2).f_code.co_filename):
        numbers = {key for key, value in object.__getattribute__(self, "__dict__").items() if _is_of_numbers(value)}
        require_watched(type(self).__name__, self, numbers)
    return object.__getattribute__(self, name)


def _is_of_numbers(value: object) -> bool:
    return type(value) in (bool, int, float) or (type(value) is list and all(type(one) in (int, float) for one in value))
