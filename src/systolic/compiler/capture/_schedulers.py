"""Learning rate schedulers in a step: `sch.step()` is done on the host after every step, and what a step reads is watched.

A scheduler is Python that counts its steps and sets a number of the optimizer's. Called while a step is traced it would count
that one step only, and its formula would be frozen with that count. Where an optimizer steps after its scheduler, both in one
step, or the step reads what its scheduler has set, the host runs the schedulers ahead before every step, and the program takes
the numbers that they set.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ...utilities._typical_time import TypicalTime
from .._capture_thread import replaced
from .._errors import CaptureError, is_user_frame
from ._host_calls import recorded_by_all, recording
from ._watched_objects import require_watched

_COUNTS = frozenset({"last_epoch", "_last_lr", "_step_count", "best", "num_bad_epochs", "cooldown_counter", "T_cur"})
"""Attributes of schedulers that change with their steps."""
_READ = _COUNTS | {"get_last_lr"}
"""What user code reads of them."""


_SET = ("lr", "momentum", "betas", "weight_decay")
"""Numbers of an optimizer's groups that schedulers set."""

Numbers = dict[str, Any]
"""Of a group or a scheduler, by name; while a step is traced, symbols."""


class _Stepped:
    """The schedulers' steps of one trace, in order.

    Args:
        optimizers: those that the step may reach, before it begins.

    Attributes:
        optimizers: by id, those of which a scheduler has stepped, with whether they had stepped themselves before it did.
        schedulers: by id, those that have stepped, and those inside of them, with what they hold then; empty where nobody has
            run them ahead.
    """

    def __init__(self, optimizers: Iterable[Optimizer]) -> None:
        self._first = {id(group): _numbers(group) for optimizer in optimizers for group in optimizer.param_groups}
        self.optimizers: dict[int, tuple[Any, bool]] = {}
        self.schedulers: dict[int, Numbers] = {}
        self._steps: list[_Call] = []
        self._known: dict[int, tuple[Numbers, Numbers]] = {}
        self._is_used = self._is_read = False
        self._asked: set[int] = set()

    def note(self, call: _Call) -> _Call:
        """A scheduler steps; the same call, with the numbers that the step has set by then.

        `self.optimizers` tells afterwards whether its optimizer steps, too.
        """
        optimizer, calls = call.scheduler.optimizer, recording()
        if calls is None:
            return call
        self._note_use()
        self._note_first(call.scheduler)
        vars(optimizer)["_opt_called"] = False
        groups = optimizer.param_groups
        call = replace(call, set_before=tuple(self._set_since(group) for group in groups))
        self._steps.append(call)
        if calls.parts.has(_ahead):
            given = [(one.set_before, one.args, one.kwargs) for one in self._steps]
            ahead, counts = calls.parts.result(_ahead, _COST, (_Steps(tuple(self._steps)), given), {})
            for group, numbers in zip(groups, ahead, strict=True):
                group.update(numbers)
            self.schedulers.update(zip(map(id, _with_inner(call.scheduler)), counts, strict=True))
        self._known.update({id(group): (group, _numbers(group)) for group in groups})
        return call

    def _note_first(self, scheduler: LRScheduler) -> None:
        optimizer = scheduler.optimizer
        if id(optimizer) not in self.optimizers:
            self.optimizers[id(optimizer)] = optimizer, bool(vars(optimizer).get("_opt_called", False))
            for group in optimizer.param_groups:
                self._known[id(group)] = group, self._first.setdefault(id(group), _numbers(group))
        for one in _with_inner(scheduler):
            self.schedulers.setdefault(id(one), {})

    def _set_since(self, group: Numbers) -> Numbers:
        """The numbers of a group that the step has set since a scheduler did; by identity, since symbols have no values."""
        _, known = self._known[id(group)]
        return {name: number for name, number in _numbers(group).items() if number is not known.get(name)}

    def read(self, scheduler: LRScheduler, name: str) -> Any:
        """The attribute that user code reads of a scheduler that has stepped."""
        self._is_read = True
        ahead = self.schedulers[id(scheduler)]
        if name == "get_last_lr" and "_last_lr" in ahead:
            return lambda: list(ahead["_last_lr"])
        return ahead[name] if name in ahead else object.__getattribute__(scheduler, name)

    def note_groups(self, optimizer: Optimizer) -> None:
        """User code takes the groups of an optimizer, to read a number before or after its scheduler steps."""
        self._asked.add(id(optimizer))

    def _note_use(self) -> None:
        self._is_used |= any(vars(optimizer).get("_opt_called", False) for optimizer, _ in self.optimizers.values())

    def require_right(self) -> None:
        """Have the trace begin again where the step takes numbers of a scheduler's that were not set yet.

        Raises:
            CaptureError: nobody can run the schedulers ahead.
        """
        self._note_use()
        calls = recording()
        if calls is None or calls.parts.has(_ahead):
            return
        if self._is_used or self._is_read or self._asked & set(self.optimizers):
            calls.need(_ahead)
        if self._is_used:
            raise CaptureError(
                "An optimizer steps after its learning rate scheduler did, both in one step, so that it needs the number that "
                "the scheduler sets on the host.\nOptions: step the scheduler after the optimizer's last step; or set it "
                "in its place, `for group in optimizer.param_groups: group['lr'] *= 0.5`."
            )

    def put_back(self) -> None:
        """Give the groups the numbers that they had before the step, where the schedulers set others after it."""
        for group, _ in self._known.values():
            own = self._set_since(group)
            group.update({name: number for name, number in self._first[id(group)].items() if name not in own})
        for optimizer, had_stepped in self.optimizers.values():
            vars(optimizer)["_opt_called"] = had_stepped or bool(vars(optimizer).get("_opt_called", False))


@dataclass(frozen=True)
class _Call:
    """One step of a scheduler.

    Attributes:
        scheduler: the scheduler.
        step: its own method.
        args: its arguments.
        kwargs: its arguments by name.
        set_before: of each group of its optimizer, the numbers that the training step itself has set since a scheduler did.
    """

    scheduler: LRScheduler
    step: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    set_before: tuple[Numbers, ...] = ()


def _done(
    step: Callable[..., Any],
    scheduler: LRScheduler,
    set_before: tuple[Numbers, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """A step of a scheduler, with what the training step itself has set before."""
    for group, numbers in zip(scheduler.optimizer.param_groups, set_before, strict=True):
        group.update(numbers)
    # `super().step()` of the user's own scheduler is called after the training step, where this is no replacement
    step(scheduler, *args, **kwargs)


@dataclass(frozen=True, eq=False)
class _Steps:
    calls: tuple[_Call, ...]


def _ahead(
    steps: _Steps, given: list[tuple[tuple[Numbers, ...], tuple[Any, ...], dict[str, Any]]]
) -> tuple[list[Numbers], list[Numbers]]:
    """Numbers that steps of schedulers, which are undone, set in the groups of the last one's optimizer, and in itself.

    Args:
        steps: the steps.
        given: of each, the numbers that were set before it, and its arguments.
    """
    optimizers = {id(call.scheduler.optimizer): call.scheduler.optimizer for call in steps.calls}
    held = [(vars(one), _copied_state(vars(one))) for call in steps.calls for one in _with_inner(call.scheduler)]
    groups = [(group, dict(group)) for optimizer in optimizers.values() for group in optimizer.param_groups]
    last = steps.calls[-1].scheduler
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the order of steps: they are told of when the schedulers step
            for call, (set_before, args, kwargs) in zip(steps.calls, given, strict=True):
                _done(call.step, call.scheduler, set_before, args, kwargs)
        return [_numbers(group) for group in last.optimizer.param_groups], [_counts(one) for one in _with_inner(last)]
    finally:
        for mapping, before in [*groups, *reversed(held)]:
            mapping.clear()
            mapping.update(before)


def _numbers(group: Numbers) -> Numbers:
    return {name: group[name] for name in _SET if name in group}


def _counts(scheduler: LRScheduler) -> Numbers:
    return {name: value for name, value in vars(scheduler).items() if name in _COUNTS and _is_of_numbers(value)}


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
        stack.enter_context(replaced(LRScheduler, "__getattribute__", _noted(stepped)))
        stack.enter_context(replaced(Optimizer, "__getattribute__", _groups_noted(stepped)))
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
        call = stepped.note(_Call(self, original, args, kwargs))
        recorded_by_all(_done, original, self, call.set_before, args, kwargs)

    return step


def _noted(stepped: _Stepped) -> Callable[[LRScheduler, str], Any]:
    def read(self: LRScheduler, name: str) -> Any:
        if name in _READ and is_user_frame(sys._getframe(2).f_code.co_filename):
            if id(self) in stepped.schedulers:
                return stepped.read(self, name)
            numbers = {key for key, value in object.__getattribute__(self, "__dict__").items() if _is_of_numbers(value)}
            require_watched(type(self).__name__, self, numbers)
        return object.__getattribute__(self, name)

    return read


def _groups_noted(stepped: _Stepped) -> Callable[[Optimizer, str], Any]:
    def read(self: Optimizer, name: str) -> Any:
        if name == "param_groups":
            asks = sys._getframe(2)
            while asks.f_code.co_name == "__getattr__" and asks.f_back is not None:  # an optimizer around this one
                asks = asks.f_back
            if is_user_frame(asks.f_code.co_filename):
                stepped.note_groups(self)
        return object.__getattribute__(self, name)

    return read


def _is_of_numbers(value: object) -> bool:
    return type(value) in (bool, int, float) or (type(value) is list and all(type(one) in (int, float) for one in value))
