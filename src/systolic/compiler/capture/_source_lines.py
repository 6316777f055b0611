"""The source of an instruction: the expression of the user's code that Python is at, and what a name in it stands for."""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
import linecache
from types import CodeType, FrameType, ModuleType
from typing import Any


@functools.lru_cache(maxsize=256)
def expression_at(code: CodeType, instruction: int) -> ast.expr | None:
    """The expression that an instruction stands for; None for statements, and where there is no source.

    Args:
        code: what is running.
        instruction: where in it, as `frame.f_lasti` and `traceback.tb_lasti` say.
    """
    line, end_line, column, end_column = next(itertools.islice(code.co_positions(), instruction // 2, None))
    if line is None or end_line is None or column is None or end_column is None:
        return None
    lines = [linecache.getline(code.co_filename, number) for number in range(line, end_line + 1)]
    raw = [text.encode() for text in lines]  # columns count bytes
    raw[-1] = raw[-1][:end_column]
    raw[0] = raw[0][column:]
    try:
        return ast.parse(f"({b''.join(raw).decode()})", mode="eval").body
    except SyntaxError:
        return None


def named_object(node: ast.expr, frame: FrameType) -> Any:
    """The object that a name, or an attribute of modules, stands for in a frame; None for anything else."""
    if isinstance(node, ast.Name):
        return {**vars(builtins), **frame.f_globals, **frame.f_locals}.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = named_object(node.value, frame)
        return vars(owner).get(node.attr) if isinstance(owner, ModuleType) else None
    return None
