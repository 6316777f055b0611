"""Texts among the arguments of a step, such as names of files: a token stands for each while the step is traced.

A step that only keeps a text, returns it or hands it to a function of the host does the same with any other text, which the
token shows: it ends up where the text belongs. What Python does besides is done with the text of this batch, and noted; the
trace then begins again with that text itself, which is compared before later steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class TextsAreReadError(Exception):
    """A step reads texts that were taken for ones it only hands on: it must be traced again, with these themselves."""


class GivenText:
    """Stands for a text. To code of the user's it is a `str`, but no plain one: `type(text) is str` is false.

    Args:
        current: gives the text of the batch that is at hand.
        note: is called where something is done with the text.
    """

    __slots__ = ("_systolic_current", "_systolic_note")

    def __init__(self, current: Callable[[], str], note: Callable[[], None]) -> None:
        self._systolic_current = current
        self._systolic_note = note

    @property
    def __class__(self) -> type[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return str

    def __copy__(self) -> GivenText:
        return self

    def __deepcopy__(self, memo: object) -> GivenText:
        return self


def current_text(given: GivenText) -> str:
    """The text of the batch that is at hand; nothing counts as read."""
    return given._systolic_current()


def _read(given: object) -> Any:
    """An argument as it is: of a token the text, which from now on counts as read."""
    if not isinstance(given, GivenText):
        return given
    given._systolic_note()
    return given._systolic_current()


def _reading(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args, **named: method(*map(_read, (self, *args)), **named)


_OWN = {"__new__", "__getattribute__", "__getnewargs__", "__sizeof__", "__doc__", "maketrans"}
"""What makes an object, and not what is done with a text."""

for _name, _method in vars(str).items():
    if _name not in _OWN:
        setattr(GivenText, _name, _reading(_method))
for _name, _method in {
    "__radd__": lambda text, other: other + text,
    "__reduce_ex__": lambda text, protocol: text.__reduce_ex__(protocol),
    "__fspath__": str,
    "__int__": int,
    "__float__": float,
}.items():
    setattr(GivenText, _name, _reading(_method))
