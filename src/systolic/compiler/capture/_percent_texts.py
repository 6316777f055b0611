"""Text by `%`: `"%.3f" % loss`, of which Python asks the number in C and puts its digits into the text at once.

It is given a number that occurs in no text. Where the text is shown or kept, the digits that a conversion makes of that number
are the place of the value.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from types import FrameType

from ._source_lines import expression_at

_CONVERSION = re.compile(r"%%|%(?:\(\w*\))?([#0\- +]*[0-9]*(?:\.[0-9]+)?[diufFeEgG])")


@dataclass
class PercentText:
    """One value in a text by `%`.

    Attributes:
        conversions: those of the text, one of which it was asked for: `.3f`.
        number: given in the value's place.
        mark: stands for the value in texts that are formatted otherwise.
    """

    conversions: tuple[str, ...]
    number: int | float
    mark: str = ""
    _chosen: str = field(default="", init=False)

    def text_of(self, value: int | float) -> str:
        """The value as the conversion writes it."""
        return f"%{self._chosen}" % value

    def marked(self, text: str) -> str:
        """The text with the mark in the place of the number's digits."""
        digits = {f"%{one}" % self.number: one for one in self.conversions}
        for piece in sorted(digits, key=len, reverse=True):  # those of `.3f` begin those of `.4f`
            if piece in text:
                self._chosen = digits[piece]
                return text.replace(piece, self.mark)
        return text


def asked_by_percent(frame: FrameType | None, place: int, kind: type[int] | type[float]) -> PercentText | None:
    """The text for which user code asks a value for a number now; None where it asks in another way.

    Args:
        frame: the innermost one of user code.
        place: of the value among those of the trace: each gets another number.
        kind: of number.
    """
    node = None if frame is None else expression_at(frame.f_code, frame.f_lasti)
    if frame is None or not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)):
        return None
    letters = "diu" if kind is int else "fFeEgG"
    found = tuple(one for one in _CONVERSION.findall(_text_of(node.left, frame)) if one and one[-1] in letters)
    if not found:
        return None
    number = int(f"8{place:04d}{'7530942' * 6}") if kind is int else float(f"8.{place:04d}7530942e200")
    return PercentText(found, number)


def _text_of(node: ast.expr, frame: FrameType) -> str:
    """The text that an expression is: written there, a variable, an attribute, or such texts added; else an empty one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text_of(node.left, frame) + _text_of(node.right, frame)
    return str(_value_of(node, frame) or "")


def _value_of(node: ast.expr, frame: FrameType) -> object:
    # to call something for it would do so twice
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    return getattr(_value_of(node.value, frame), node.attr, None) if isinstance(node, ast.Attribute) else None
