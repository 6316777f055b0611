"""The functions that get text of values that do not exist yet, found while a step is traced, and whether one works on it."""

from __future__ import annotations

import itertools
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Reversible
from types import CodeType, FrameType
from typing import Literal

from .._capture_thread import is_capture_thread
from .._errors import is_ours, is_user_frame
from ._text_work import Kind, Taints, TextWork, span_at

_Event = Literal["call", "return", "c_call", "c_return", "c_exception"]
_Profile = Callable[[FrameType, _Event, object], object]

_CONTAINERS = (list, tuple, set, frozenset, deque)
_DEPTH = 3
_LOOKED_AT = 512
"""So many of the first and last entries of what a function gets are looked at, before every call."""
_KEEPING = frozenset({
    "abc", "contextlib", "copy", "csv", "dataclasses", "enum", "functools", "io", "logging", "os", "pathlib", "posixpath",
    "queue", "threading", "types", "typing", "unittest", "warnings", "weakref", "jax", "torch",
})  # fmt: skip
"""Modules that do with text what belongs after the step, or nothing."""
_WORKING = frozenset({
    "ast", "base64", "collections", "decimal", "difflib", "fractions", "hashlib", "html", "json", "pickle", "re", "shlex",
    "statistics", "string", "textwrap", "urllib",
})  # fmt: skip
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class TextHolders:
    """Watches calls from the first text on, as a joined text is Python's own: nothing tells what is done with it.

    Args:
        is_of_value: whether a text is formatted of values.
    """

    def __init__(self, is_of_value: Callable[[str], bool]) -> None:
        self._is_of_value = is_of_value
        self._taints: defaultdict[CodeType, Taints] = defaultdict(Taints)
        self._called: dict[CodeType, None] = {}
        self._attributes: dict[str, Kind] = {}
        self._is_worked_on = self._may_be_worked_on = self._is_watching = False
        self._outer: _Profile | None = None

    def made(self, frame: FrameType | None) -> None:
        """A function formats a value now.

        Args:
            frame: the innermost one of user code.
        """
        if frame is not None:
            self._note(frame, "text")
        while frame is not None:
            if is_user_frame(frame.f_code.co_filename):
                self._called[frame.f_code] = None
            frame = frame.f_back
        if not self._is_watching:
            self._is_watching, self._outer = True, sys.getprofile()
            sys.setprofile(self._look)

    def note_work(self) -> None:
        """A text that stands for one value alone has been worked on."""
        self._is_worked_on = True

    def stop(self) -> None:
        """Watch no longer."""
        if self._is_watching:
            self._is_watching = False
            self._is_of_value = str.isspace  # a mark that somebody keeps shall not keep the trace
            sys.setprofile(self._outer)

    def are_worked_on(self, in_doubt: bool) -> bool:
        """Whether a function has worked on text of values, as far as its source tells.

        Args:
            in_doubt: whether a call that may be work counts.
        """
        if self._is_worked_on or (in_doubt and self._may_be_worked_on):
            return True
        work = TextWork(frozenset(name for code in self._called for name in _names_of(code)), in_doubt)
        work.attributes.update(self._attributes)
        while not self._is_worked_on:
            known = dict(work.attributes)
            for code in self._called:
                if code in self._taints or not known.keys().isdisjoint(code.co_names):
                    self._is_worked_on |= work.is_done_by(code, self._taints[code])
            if known == work.attributes:
                break
        return self._is_worked_on

    def _look(self, frame: FrameType, event: _Event, value: object) -> None:
        if self._outer is not None:
            self._outer(frame, event, value)
        if event == "call":
            if is_user_frame(frame.f_code.co_filename):
                self._note_call(frame)
            elif frame.f_back is not None and is_user_frame(frame.f_back.f_code.co_filename):
                self._note_call_of_pythons(frame)
        elif event == "return" and is_user_frame(frame.f_code.co_filename):
            self._note_return(frame, value)

    def _note_call(self, frame: FrameType) -> None:
        code = frame.f_code
        self._called[code] = None
        for name, value in frame.f_locals.items():
            if name != ".0" and (kind := self._kind(value)) is not None:
                self._taints[code].names[name] = kind
            else:
                self._note_attributes(value)
        for name in code.co_names:
            value = frame.f_globals.get(name)
            if type(value) in (str, dict, *_CONTAINERS) and (kind := self._kind(value)) is not None:
                self._taints[code].names[name] = kind

    def _note_attributes(self, value: object) -> None:
        if type(value) in (type, types.ModuleType, types.FunctionType):
            return
        try:
            held = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        if type(held) is dict:
            for name, one in list(held.items()):
                if type(name) is str and (kind := self._kind(one)) is not None:
                    self._attributes[name] = kind

    def _note_call_of_pythons(self, frame: FrameType) -> None:
        """A function of Python's own library that gets text works on it, but for some."""
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if is_ours(frame.f_code.co_filename) or module in _KEEPING or self._may_be_worked_on and module not in _WORKING:
            return
        if any(self._kind(value) is not None for value in frame.f_locals.values()):
            self._may_be_worked_on = True
            self._is_worked_on |= module in _WORKING

    def _note_return(self, frame: FrameType, value: object) -> None:
        kind = self._kind(value)
        caller = frame.f_back
        while kind is not None and caller is not None and not is_user_frame(caller.f_code.co_filename):
            caller = caller.f_back
        if kind is not None and caller is not None:
            self._note(caller, kind)

    def _note(self, frame: FrameType, kind: Kind) -> None:
        span = span_at(frame.f_code, frame.f_lasti)
        owner = frame
        while owner.f_code.co_name in _COMPREHENSIONS and owner.f_back is not None:
            owner = owner.f_back
        for one in (frame, owner):
            self._called[one.f_code] = None
            if span is not None:
                self._taints[one.f_code].spans[span] = kind

    def _kind(self, value: object, depth: int = _DEPTH) -> Kind | None:
        # what stands for a text of the batch's says that it is a `str`
        if isinstance(value, str) and issubclass(type(value), str):
            return "text" if self._is_of_value(str.__str__(value)) else None
        if depth and isinstance(value, _CONTAINERS) and type(value) in _CONTAINERS:
            held = _some(value)
        elif depth and isinstance(value, dict) and type(value) is dict:
            held = [*_some(value.keys()), *_some(value.values())]
        else:
            return None
        return "holder" if any(self._kind(one, depth - 1) is not None for one in held) else None


def _names_of(code: CodeType) -> tuple[str, ...]:
    """The names by which a function is called: of what makes an object that of its class."""
    return (code.co_name, *code.co_qualname.split(".")[-2:-1])


def _some(entries: Collection[object]) -> list[object]:
    """The entries of a container, of a large one the first and last ones."""
    if len(entries) <= 2 * _LOOKED_AT:
        return list(entries)
    last = reversed(entries) if isinstance(entries, Reversible) else ()
    return [*itertools.islice(entries, _LOOKED_AT), *itertools.islice(last, _LOOKED_AT)]


class MarkText(str):
    """Text that stands for one value: tells where user code looks into it."""

    __slots__ = ("_holders",)
    _holders: TextHolders

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str.__str__(self),)


def mark_text(text: str, holders: TextHolders) -> MarkText:
    """A text that tells `holders` where it is worked on."""
    mark = MarkText(text)
    mark._holders = holders
    return mark


def _telling(name: str) -> Callable[..., object]:
    method = getattr(str, name)

    def told(self: MarkText, *args: object, **named: object) -> object:
        if is_capture_thread() and is_user_frame(sys._getframe(1).f_code.co_filename):
            self._holders.note_work()
        return method(self, *args, **named)

    return told


_LOOKS = ("__len__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__iter__", "__contains__", "__getitem__")
_OTHER = ("join", "format", "format_map", "maketrans")
for _name in (*_LOOKS, *(name for name in vars(str) if not name.startswith("_") and name not in _OTHER)):
    setattr(MarkText, _name, _telling(_name))
MarkText.__hash__ = str.__hash__  # a class that compares has no hash of its own: keys are judged by the source
