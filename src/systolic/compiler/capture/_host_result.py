"""Stand-in for what a function gives that is called on the host after the step."""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn, Protocol

import torch

from ...utilities._torch_internals import tree_leaves
from .._errors import CaptureError, is_user_frame, user_line_of


class Recorder(Protocol):
    """The host calls of a trace, as a result needs them."""

    def mark(self, value: object, convert: Callable[[Any], str]) -> str:
        """Text that stands for a value, until there is one."""
        ...

    def record_for(
        self, result: HostResult, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Note a call that gets `result` before its arguments, to set it."""
        ...

    def need(self, function: Callable[..., Any]) -> None:
        """Have the trace begin again with a function called before the program, where that is possible."""
        ...


class HostResultIsNeededError(Exception):
    """The step computes with what a function of the host gives: the trace must begin again with it called before the program.

    Attributes:
        function: which one.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__("the step computes with the result of a function of the host")
        self.function = function


class _LeftOut:
    """Stands for the results of functions that only the first process calls."""

    def __format__(self, spec: str) -> str:
        return ""


LEFT_OUT = _LeftOut()


class HostResult:
    """The result of a function that is called on the host after the step: to be logged, kept or shown.

    What Python computes of it is computed after the step, too. Where the step itself computes with it, the trace begins again
    with the function called before the program.

    Args:
        name: of the function, for errors.
        calls: the host calls of the trace.
        function: what gives it, or what it is computed of; None for what cannot be had earlier.
    """

    def __init__(self, name: str, calls: Recorder, function: Callable[..., Any] | None = None) -> None:
        self._name, self._calls, self._function = name, calls, function
        self._is_there = False
        self._value: Any = None

    @property
    def value(self) -> Any:
        """The result for the step that came last; only calls that are made after the step can ask."""
        if not self._is_there:
            self.refuse()
        return self._value

    def or_stand_in(self) -> Any:
        """The result, or the stand-in itself before any step has run: a plan of a step leaves it where the step keeps it."""
        return self._value if self._is_there else self

    def set(self, value: object) -> None:
        """Take the result for a step."""
        self._is_there, self._value = True, value

    def leave_out(self) -> None:
        """In this process the function is not called."""
        self.set(LEFT_OUT)

    def __repr__(self) -> str:
        return repr(self._value) if self._is_there else f"<what {self._name} gives after the step>"

    def refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise: the step needs the value before there is one."""
        if self._function is not None:
            self._calls.need(self._function)
        raise CaptureError(
            f"The step needs the result of {self._name}, which is called on the host after the step, when the tensors have "
            f"values.\n  used at {user_line_of()}\n"
            'Options: log it, self.log("name", result); print it; keep it; do what follows in a function of your own that '
            "systolic.host calls; or compute it with torch."
        )

    def __eq__(self, other: object) -> Any:
        # whether it is the same stand-in; user code that asks for more needs the value
        if self is not other and not self._is_there and _is_users(sys._getframe(1)):
            self.refuse()
        return NotImplemented

    def __getattr__(self, name: str) -> Any:
        # of the value (`spearmanr(x, y).statistic`), after the step; what others than user code look for is not there
        if name.startswith("_") or not _is_users(sys._getframe(1)):
            raise AttributeError(name)
        return self.later(operator.attrgetter(name))

    def __format__(self, spec: str) -> str:
        return repr(self) if self._is_there else self._calls.mark(self, lambda value: format(value, spec))

    def __str__(self) -> str:
        return format(self)

    def __enter__(self) -> Any:
        return self.later(operator.methodcaller("__enter__"))

    def __exit__(self, *error: object) -> None:
        self.later(operator.methodcaller("__exit__", None, None, None))

    def __iter__(self) -> Iterator[Any]:
        """The parts of a result that the step takes apart (`precision, recall = ...`), each after the step, too."""
        if self._is_there:
            return iter(self._value)
        count = _unpacked_count(sys._getframe(1))
        if count is None:
            self.refuse()
        return iter([self.later(operator.itemgetter(place)) for place in range(count)])

    def later(self, operation: Callable[..., Any], *others: Any, **named: Any) -> Any:
        """The result of an operation with this one as its first argument: computed after the step, too."""
        if self._is_there:
            return operation(self._value, *others, **named)
        if any(isinstance(one, torch.Tensor) for one in others):
            self.refuse()
        result = HostResult(self._name, self._calls, self._function)
        self._calls.record_for(result, _set_computed, (operation, self, *others), named)
        return result

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> NoReturn:
        """Refuse a function of PyTorch's that is given one."""
        del types
        given = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, HostResult))
        given.refuse()

    __hash__ = object.__hash__
    __array__ = refuse
    __float__ = __int__ = __bool__ = __index__ = __len__ = refuse
    __lt__ = __le__ = __gt__ = __ge__ = refuse


def _set_computed(result: HostResult, operation: Callable[..., Any], *values: Any, **named: Any) -> None:
    result.set(operation(*values, **named))


def _unpacked_count(frame: FrameType) -> int | None:
    """How many names the instruction that a frame is at gives values to (`a, b = ...`); None where it is another one."""
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset == frame.f_lasti:
            return instruction.arg if instruction.opname == "UNPACK_SEQUENCE" else None
    return None


def _is_users(frame: FrameType) -> bool:
    return is_user_frame(frame.f_code.co_filename)


def _method(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *others, **named: self.later(operation, *others, **named)


def _reflected(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, other: operation(other, one)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(HostResult, f"__{_name}__", _method(getattr(operator, _name)))
    setattr(HostResult, f"__r{_name}__", _method(_reflected(getattr(operator, _name))))
_ALONE = {"neg": operator.neg, "abs": abs, "round": round, "getitem": operator.getitem, "call": operator.call}
for _name, _operation in _ALONE.items():
    setattr(HostResult, f"__{_name}__", _method(_operation))
