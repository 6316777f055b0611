"""Learning rate schedulers in a step: `sch.step()` is done on the host after every step, and what a step reads is watched.

A scheduler is Python that counts its steps and sets a number of the optimizer's. Called while a step is traced it would count
that one step only, and its formula would be frozen with that count. Where an optimizer steps after its scheduler, both in one
step, the host runs the schedulers ahead before every step, and the program takes the numbers that they set.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ...utilities._typical_time import TypicalTime
from .._capture_thread import replaced
from .._errors import CaptureError, is_user_frame
from ._host_calls import recorded_by_all, recording
from ._watched_objects import require_watched

_READ = frozenset(
    {"last_epoch", "_last_lr", "get_last_lr", "_step_count", "best", "num_bad_epochs", "cooldown_counter", "T_cur"}
)
"""What user code reads of a scheduler that changes with its steps."""


_SET = ("lr", "momentum", "betas", "weight_decay")
"""Numbers of an optimizer's groups that schedulers set."""


class _Stepped:
    """The schedulers' steps of one trace, in order.

    Args:
        optimizers: those that the step may reach, before it begins.

    Attributes:
        optimizers: by id, those of which a scheduler has stepped, with whether they had stepped themselves before it did.
    """

    def __init__(self, optimizers: Iterable[Optimizer]) -> None:
        self._first = {id(group): _numbers(group) for optimizer in optimizers for group in optimizer.param_groups}
        self.optimizers: dict[int, tuple[Any, bool]] = {}
        self._steps: list[_Call] = []
        self._before: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._now: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._is_used = self._is_changed = False

    def note(self, call: _Call) -> None:
        """A scheduler steps: `self.optimizers` tells afterwards whether its optimizer does so, too."""
        optimizer, calls = call.scheduler.optimizer, recording()
        if calls is None:
            return
        self._note_use()
        self._steps.append(call)
        if id(optimizer) not in self.optimizers:
            self.optimizers[id(optimizer)] = optimizer, bool(vars(optimizer).get("_opt_called", False))
            self._before += [(group, _numbers(group)) for group in optimizer.param_groups]
            self._now += [(group, self._first.get(id(group), {})) for group in optimizer.param_groups]
        vars(optimizer)["_opt_called"] = False
        self._is_changed |= any(group[name] is not number for group, was in self._now for name, number in was.items())
        if calls.parts.has(_rates_ahead) and self._are_steps_known():
            found = calls.parts.result(_rates_ahead, _COST, (_Steps(tuple(self._steps)),), {})
            for group, numbers in zip(optimizer.param_groups, found, strict=True):
                group.update(numbers)
        self._now = [(group, _numbers(group)) for group, _ in self._now]

    def _are_steps_known(self) -> bool:
        """Whether schedulers alone set the numbers, by their count."""
        return not self._is_changed and not any(call.args or call.kwargs for call in self._steps)

    def _note_use(self) -> None:
        self._is_used |= any(vars(optimizer).get("_opt_called", False) for optimizer, _ in self.optimizers.values())

    def require_right(self) -> None:
        """Have the trace begin again where an optimizer has stepped after its scheduler, with numbers that were not set yet.

        Raises:
            CaptureError: nobody can run the schedulers ahead.
        """
        self._note_use()
        calls = recording()
        if calls is None or not self._is_used or (calls.parts.has(_rates_ahead) and self._are_steps_known()):
            return
        if self._are_steps_known():
            calls.need(_rates_ahead)
        raise CaptureError(
            "An optimizer steps after its learning rate scheduler did, both in one step, so that it needs the number which the "
            "scheduler sets on the host.\nOptions: step the scheduler after the optimizer's last step; or set the lr in its "
            "place, `for group in optimizer.param_groups: group['lr'] *= 0.5`."
        )

    def put_back(self) -> None:
        """Give the groups the numbers that they had: the schedulers set others after the step."""
        for group, numbers in self._before:
            group.update(numbers)
        for optimizer, had_stepped in self.optimizers.values():
            vars(optimizer)["_opt_called"] = had_stepped or bool(vars(optimizer).get("_opt_called", False))


@dataclass(frozen=True)
class _Call:
    scheduler: LRScheduler
    step: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Steps:
    calls: tuple[_Call, ...]


def _rates_ahead(steps: _Steps) -> list[dict[str, Any]]:
    """The numbers of the groups of the last one's optimizer after some steps of schedulers, which are undone."""
    optimizers = {id(call.scheduler.optimizer): call.scheduler.optimizer for call in steps.calls}
    held = [(vars(one), _copied_state(vars(one))) for call in steps.calls for one in _with_inner(call.scheduler)]
    groups = [(group, dict(group)) for optimizer in optimizers.values() for group in optimizer.param_groups]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the order of steps: they are told of when the schedulers step
            for call in steps.calls:
                call.step(call.scheduler, *call.args, **call.kwargs)
        last = steps.calls[-1].scheduler.optimizer
        return [_numbers(group) for group in last.param_groups]
    finally:
        for mapping, before in [*groups, *reversed(held)]:
            mapping.clear()
            mapping.update(before)


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    return {name: group[name] for name in _SET if name in group}


def _with_inner(scheduler: LRScheduler) -> Iterator[LRScheduler]:
    """A scheduler, and those that it steps: `SequentialLR`, `ChainedScheduler`, the user's own."""
    yield scheduler
    for value in vars(scheduler).values():
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, LRScheduler):
                yield from _with_inner(one)


def _copied_state(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a scheduler, with lists and dicts of their own."""
    return {name: copy.copy(value) if type(value) in (list, dict) else value for name, value in state.items()}


_COST = TypicalTime(lambda time, of: f"Learning rate schedulers are run ahead before every step: {time} a call ({of}).")


@contextlib.contextmanager
def schedulers_on_the_host(optimizers: Iterable[Optimizer]) -> Iterator[None]:
    """Inside the block, schedulers step after the step that is traced, and reading one makes the step depend on it.

    Args:
        optimizers: those that the step may reach.
    """
    stepped = _Stepped(optimizers)
    with contextlib.ExitStack() as stack:
        for kind in _kinds(LRScheduler):
            if "step" in vars(kind):
                stack.enter_context(replaced(kind, "step", _after_the_step(vars(kind)["step"], stepped)))
        stack.enter_context(replaced(LRScheduler, "__getattribute__", _noted))
        try:
            yield
            stepped.require_right()
        finally:
            stepped.put_back()


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _kinds(inner)


def _after_the_step(original: Callable[..., Any], stepped: _Stepped) -> Callable[..., Any]:
    def step(self: LRScheduler, *args: Any, **kwargs: Any) -> None:
        stepped.note(_Call(self, original, args, kwargs))
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
