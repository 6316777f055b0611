"""Where an operation of a compiled program comes from in the user's code."""

from __future__ import annotations

import re

from ._hlo_analysis import Operation

_LINE = re.compile(r"\[([^\[\]]+:\d+)\]")
_SCOPE = re.compile(r"(?:^|/)((?:backward/)?model[^/\[]*|backward|optimizer)(?:/|$)")


def user_line(operation: Operation) -> str:
    """The line of user code that an operation comes from, as "file:line"; of a fusion, the line of its last op."""
    found = _LINE.findall(operation.op_name)
    return found[-1] if found else ""


def module_of(operation: Operation) -> str:
    """The module that an operation belongs to: `model.net.0`, `backward/model.net.0`, or `optimizer`."""
    found = _SCOPE.search(_LINE.sub("", operation.op_name).replace("//", "/"))
    return found[1] if found else ""
