"""Calls that only show or store something (`print`, `logging`, a logger's experiment): made on the host after every step.

The step is traced once, so a call that is simply made would be made once, and of values that do not exist yet. While a step is
traced such a call is recorded with what it is given; text that is formatted of a value holds a mark in the value's place.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeGuard

import torch

from ...utilities._torch_internals import _disable_current_modes, free_unbacked_symbols, tree_leaves
from ...utilities.rank_zero import FirstOnly
from .._capture_thread import is_capture_thread
from .._errors import CaptureError, DataDependentError, is_user_frame, user_line_of
from ._effects import HostCall, Kept, StandIn
from ._explain import value_needed
from ._given_texts import GivenText
from ._host_parts import HostParts
from ._host_result import HostResult
from ._module_scope import names_in
from ._output_tree import DeferredText, OutputList
from ._percent_texts import PercentText, asked_by_percent
from ._text_holders import TextHolders, mark_text
from ._traced_arrays import is_traced_array

Traced = torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool
"""Values that a trace has in place of tensors and numbers."""

_DIGITS = "0.0:0/0-0_0=0"  # in a mark: what splits text at signs, or replaces digits, leaves no whole one
_MARK = re.compile(f"\x02value ([0-9]+) {re.escape(_DIGITS)}\x03")
_print = builtins.print
_handle = logging.Logger.handle
_call_if_first = FirstOnly.call
_OURS = str(Path(__file__).parents[1])
_TRACERS = ("torch", "jax", "systolic")  # what these say while a step is traced is about the trace


@dataclass(frozen=True)
class _Formatted:
    value: Any
    convert: Callable[[Any], str]
    line: str
    is_worked_on: bool
    is_by_percent: bool = False


_ALIGN_TEXT = frozenset({"ljust", "rjust", "center", "zfill", "rstrip", "lstrip"})
_ON_MORE = frozenset({"len", "split", "replace", "get", "find", "index", "count"})  # of tensors, lists and dicts, too
# where a function that formats a value also uses one of these, it may want the text itself
_WORK_ON_TEXT = _ALIGN_TEXT | _ON_MORE | {
    "rsplit", "splitlines", "partition", "rpartition", "strip", "encode", "startswith", "endswith", "upper", "lower", "write",
    "writelines", "writerow", "writerows", "findall", "search", "match", "fullmatch", "sub",
}  # fmt: skip


class TextIsKeyError(Exception):
    """Text that is formatted of a value names something (`self.experts[f"expert_{index}"]`): a trace has to know it."""


class HostCalls:
    """The host calls of one trace.

    Args:
        outputs: the outputs of its graph.
        decides_text: whether text that is formatted of a whole number is that of this batch's, and no mark.
        only_shows: whether functions that may work on text of a value are refused, and not only those that did.
        is_shared: whether several processes run the step.
        parts: the functions of the host that are called before the program.

    Attributes:
        calls: the calls, in order.
        parts: as given.
        is_shared: as given.
        holds_the_same: whether a container that was there before the step holds what it held; None for another object.
    """

    active: HostCalls | None = None
    holds_the_same: Callable[[object], bool | None] = staticmethod(lambda item: None)

    def __init__(
        self,
        outputs: OutputList,
        parts: HostParts,
        decides_text: bool = False,
        only_shows: bool = False,
        is_shared: bool = False,
    ) -> None:
        self.parts = parts
        self._decides_text, self._only_shows, self.is_shared = decides_text, only_shows, is_shared
        self._askers: list[FrameType] = []
        self._by_first = False
        self.calls: list[HostCall] = []
        self._outputs = outputs
        self._formatted: list[_Formatted] = []
        self._percents: list[PercentText] = []
        self._reached: set[int] = set()
        self._holders = TextHolders(lambda text: has_marks(self._marked(text)))
        self._outer: HostCalls | None = None
        outputs.of_text = self.text

    def __enter__(self) -> HostCalls:
        self._outer, HostCalls.active = HostCalls.active, self
        return self

    def __exit__(self, *_: object) -> None:
        HostCalls.active = self._outer
        self._askers.clear()
        self._holders.stop()

    def record(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, by_all: bool = False
    ) -> None:
        """Note a call, with its arguments as they are now.

        Args:
            function: what is called.
            args: its arguments.
            kwargs: its arguments by name.
            by_all: whether all processes make it wherever it stands.
        """
        given = tuple(map(self._as_given, args)), {name: self._as_given(value) for name, value in kwargs.items()}
        line = user_line_of().partition(": ")[0]
        tree = self._outputs.tree(given, self._as_it_is)
        self.calls.append(HostCall(function, tree, line, not by_all and self._is_for_first()))

    def _as_given(self, argument: object) -> Any:
        """An argument that waits for no value is kept as it is now, whatever it is made of."""
        if isinstance(argument, Kept):
            return argument
        if isinstance(argument, StandIn):
            return Kept(argument.original)
        if any(map(self._waits, tree_leaves(argument))):
            return argument
        return Kept(copy.copy(argument) if isinstance(argument, list | dict | set) else argument)

    def _waits(self, leaf: object) -> bool:
        if isinstance(leaf, GivenText):
            return True
        if isinstance(leaf, str):
            return has_marks(self._marked(leaf))
        return isinstance(leaf, Traced | HostResult) or is_traced_array(leaf)

    def ask_for_rank(self) -> None:
        """User code has asked which process this is: what it shows and stores from now on is for the first one alone."""
        frame = _users_frame()
        if frame is not None:
            self._askers.append(frame)

    @contextlib.contextmanager
    def by_first(self) -> Iterator[None]:
        """Inside the block, calls are for the first process alone."""
        before, self._by_first = self._by_first, True
        try:
            yield
        finally:
            self._by_first = before

    def _is_for_first(self) -> bool:
        if self._by_first or not self._askers:
            return self._by_first
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not any(frame is asker for asker in self._askers):
            frame = frame.f_back
        return frame is not None

    def record_for(
        self, result: HostResult, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Note a call that gets `result` before its arguments, to set it."""
        self.record(function, (Kept(result), *args), kwargs)

    def need(self, function: Callable[..., Any]) -> None:
        """Have the trace begin again with a function called before the program, where that is possible."""
        self.parts.need(function)

    def _as_it_is(self, tensor: torch.Tensor) -> Any:
        # the object may be written to later in the step
        return self._outputs.output(tensor.detach().clone())

    def mark(self, value: object, convert: Callable[[Any], str]) -> str:
        """Text that stands for a value, until there is one."""
        if self._decides_text and (_is_whole(value) or _is_known(value)):
            return _text_of_known(value, convert)
        names = _names_of_function()
        self._formatted.append(_Formatted(value, convert, user_line_of(), not _WORK_ON_TEXT.isdisjoint(names)))
        if not (_WORK_ON_TEXT - _ON_MORE if self._only_shows else _ALIGN_TEXT).isdisjoint(names):
            self._refuse_work(user_line_of())
        self._holders.made(_users_frame())
        return mark_text(f"\x02value {len(self._formatted) - 1} {_DIGITS}\x03", self._holders)

    def number_for_text(self, value: Traced, kind: type[int] | type[float]) -> int | float | None:
        """Number for Python to put into a text by `%`, which stands for a value; None where it is not asked for that."""
        if self._decides_text and (_is_whole(value) or _is_known(value)):
            return None
        found = asked_by_percent(_users_frame(), len(self._formatted), kind)
        if found is not None:
            found.mark = self.mark(value, found.text_of)
            self._formatted[-1] = replace(self._formatted[-1], is_by_percent=True)
            self._percents.append(found)
        return None if found is None else found.number

    @property
    def was_asked(self) -> bool:
        """Whether text was formatted of values, or calls were put off."""
        return bool(self._formatted or self.calls)

    def require_texts_kept(self) -> None:
        """Refuse a step that works on text of a value: it saw a mark.

        Raises:
            CaptureError: text was neither shown nor kept, in a function that works on text.
        """
        for number, formatted in enumerate(self._formatted):
            if formatted.is_by_percent and number not in self._reached:  # what it was for had digits, and no value
                self._require_unknown([formatted])
                raise DataDependentError(value_needed(formatted.line))
            if formatted.is_worked_on and number not in self._reached:
                self._require_unknown([formatted])
                self._refuse_work(formatted.line)
        if self._formatted and self._holders.are_worked_on(in_doubt=self._only_shows):
            if not self._decides_text and any(_is_known(one.value) for one in self._formatted):
                raise TextIsKeyError
            self._refuse_work(self._formatted[0].line)

    def _refuse_work(self, line: str) -> NoReturn:
        raise CaptureError(
            "The step works on text that is formatted of a value (its length, parts of it, writing it to a file of its own). "
            f"The value exists only when the program runs.\n  used at {line}\n"
            "Options: do it in a function of your own that systolic.host calls after every step, with the tensors as its "
            "arguments; or in a hook such as on_train_batch_end, with what the step returns."
        )

    def require_no_key(self, error: Exception) -> None:
        """Raise where text that stands for a value was looked up, and found nothing."""
        if self._decides_text or not isinstance(error, LookupError | AttributeError):
            return
        if any(isinstance(a, str) and has_marks(a) for a in error.args):
            raise TextIsKeyError from error

    def require_no_number(self, error: Exception) -> None:
        """Refuse a step that made a number of text that stands for a value."""
        # Python shows the text as its source, with escapes
        if isinstance(error, ValueError) and _DIGITS in str(error) and not has_marks(str(error)):
            self._require_unknown(self._formatted)
            self._refuse_work(user_line_of(error))

    def _require_unknown(self, formatted: Sequence[_Formatted]) -> None:
        """Raise where text is worked on that is all of numbers which the host knows: another trace can have it."""
        if not self._decides_text and all(_is_known(one.value) for one in formatted):
            raise TextIsKeyError

    def require_no_name(self, names: Iterable[object]) -> None:
        """Raise where text that stands for a value became the name of an attribute, or the key of an entry."""
        if not self._decides_text and any(isinstance(name, str) and has_marks(name) for name in names):
            raise TextIsKeyError

    def explained(self, error: Exception, number: Callable[[Any], Any]) -> None:
        """Put values in place of the marks in an exception of the user's.

        Args:
            error: the exception, whose arguments are changed.
            number: the value of a symbolic number for this batch; it gives None where nobody knows.
        """
        error.args = tuple(self._readable(one, number) if isinstance(one, str) else one for one in error.args)

    def _readable(self, text: str, number: Callable[[Any], Any]) -> str:
        def shown(mark: re.Match[str]) -> str:
            formatted = self._formatted[int(mark[1])]
            value = formatted.value
            if isinstance(value, torch.Tensor):
                if value.numel() != 1:
                    return f"tensor of shape {tuple(value.shape)}"
                value = value.item()
            known = number(value)
            return formatted.convert(known) if known is not None else "?"

        return _MARK.sub(shown, text)

    def _marked(self, text: str) -> str:
        for percent in self._percents:
            text = percent.marked(text)
        return text

    def text(self, text: str) -> Any:
        """The text, or what makes it after every step where it holds marks."""
        pieces = _MARK.split(self._marked(text))
        if any("\x02" in piece or "\x03" in piece for piece in pieces[::2]):
            found = re.search("value ([0-9]+) ", text)
            self._refuse_work(user_line_of() if found is None else self._formatted[int(found[1])].line)
        if len(pieces) == 1:
            return text
        parts: list[Any] = []
        for number, piece in enumerate(pieces):
            if number % 2 == 0:
                parts.append(piece)
            else:
                formatted = self._formatted[int(piece)]
                self._reached.add(int(piece))
                parts.append((self._outputs.leaf(formatted.value, self._as_it_is), formatted.convert))
        return DeferredText(tuple(parts))


def has_marks(text: str) -> bool:
    """Whether a text is formatted of values that do not exist yet."""
    return _MARK.search(text) is not None


def _text_of_known(value: Any, convert: Callable[[Any], str]) -> str:
    """Text of a number that is asked for; of a tensor as PyTorch shows one."""
    if not isinstance(value, torch.Tensor):
        return convert(float(value) if isinstance(value, torch.SymFloat) else int(value))
    number = int(value)
    with _disable_current_modes():
        return convert(torch.full(tuple(value.shape), number, dtype=value.dtype))


def recorded(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Have a function called after every step that is being traced now; at once where none is."""
    _record(function, args, kwargs, by_all=False)


def recorded_by_all(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """The same, in all processes, whatever user code has asked before: what counts and decides is the same everywhere."""
    _record(function, args, kwargs, by_all=True)


def _record(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], by_all: bool) -> None:
    calls = recording()
    if calls is None:
        function(*args, **kwargs)
    else:
        calls.record(function, args, kwargs, by_all=by_all)


def require_plain_text(name: str) -> None:
    """Have a step traced again with its values asked for, where a text that names something is made of one.

    Args:
        name: under which the host keeps something: of a logged value.
    """
    calls = recording()
    if calls is not None:
        calls.require_no_name((name,))


def rank_in_step(own: int) -> int:
    """The number of this process as user code sees it.

    Steps run the same program in all processes, so each traces what the first one does.

    Args:
        own: what it is between the steps.
    """
    calls = recording()
    if calls is None or not calls.is_shared:
        return own
    calls.ask_for_rank()
    return 0


def call_of_first(only: FirstOnly, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function under `rank_zero_only` in a step."""
    calls = recording()
    code = getattr(function, "__code__", None)
    if calls is None or not calls.is_shared or code is None or not is_user_frame(code.co_filename):
        return _call_if_first(only, function, args, kwargs)
    with calls.by_first():
        return function(*args, **kwargs)


def recording() -> HostCalls | None:
    """The calls of the step that this thread is tracing; None where it traces none."""
    return HostCalls.active if is_capture_thread() else None


def deferred_print(*args: Any, **kwargs: Any) -> None:
    """`print`, after every step."""
    recorded(_print, *args, **kwargs)


def deferred_handle(logger: logging.Logger, record: logging.LogRecord) -> None:
    """`logging.Logger.handle`, after every step; what PyTorch and JAX log is about the trace, and is logged at once."""
    if record.name.startswith(_TRACERS):
        _handle(logger, record)
    else:
        recorded(_handled, logger, record, record.msg, record.args)


def _handled(
    logger: logging.Logger, record: logging.LogRecord, message: object, args: tuple[object, ...] | Mapping[str, object] | None
) -> None:
    now = copy.copy(record)
    now.msg, now.args, now.created = message, args, time.time()
    _handle(logger, now)


def _is_known(value: object) -> TypeGuard[torch.SymInt | torch.SymFloat]:
    """Whether a value is a number that the host knows before every step, such as `batch_idx`."""
    return isinstance(value, torch.SymInt | torch.SymFloat) and not free_unbacked_symbols(value)


def _is_whole(value: object) -> TypeGuard[torch.Tensor | torch.SymInt]:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_floating_point() and value.dtype != torch.bool
    return isinstance(value, torch.SymInt)


def number_for_text(value: Traced, kind: type[int] | type[float]) -> int | float | None:
    """Number for Python to put into a text by `%` that is made in the step that is traced; None where none is."""
    calls = HostCalls.active
    return None if calls is None else calls.number_for_text(value, kind)


def formatted(value: object, spec: str) -> str:
    """`format(value, spec)` of a value that is being traced."""
    return _text_of(value, lambda real: format(real, spec), lambda: object.__format__(value, spec))


def shown(value: Traced) -> str:
    """`str(value)` and `repr(value)` of a value that is being traced."""
    return _text_of(value, str, lambda: _unmarked(value))


def _text_of(value: object, convert: Callable[[Any], str], otherwise: Callable[[], str]) -> str:
    calls = HostCalls.active
    return otherwise() if calls is None or not _is_asked_by_user() else calls.mark(value, convert)


def _is_asked_by_user() -> bool:
    """Whether the function that asks is the user's; PyTorch's own texts stay."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return is_user_frame(frame.f_code.co_filename)


def _users_frame() -> FrameType | None:
    """The innermost frame of user code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_frame(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _names_of_function() -> frozenset[str]:
    """The globals and attributes that the innermost function of user code mentions, its comprehensions and lambdas included."""
    frame, names = _users_frame(), set[str]()
    while frame is not None and frame.f_code.co_name.startswith("<") and frame.f_back is not None:
        names.update(names_in(frame.f_code))
        frame = frame.f_back
    return frozenset(names if frame is None else names.union(names_in(frame.f_code)))


def _unmarked(value: Traced) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor(shape={tuple(value.shape)}, dtype={value.dtype}; being traced: it has no value yet)"
    return str(value.node)
