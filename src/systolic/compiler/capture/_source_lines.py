"""The source of an instruction: which expression of the user's code Python is at."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
from types import CodeType


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
