"""Settings that a step makes at its first run: `if config.problem_type is None: config.problem_type = "regression"`.

The next run finds the value and does what this one did after it had set it. Where nothing but such conditions had read the
attribute before, one trace is both runs; else the step would be traced again with the value in its place.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

from .._capture_thread import replaced
from .._errors import is_ours
from ._effects import Effect, SetItem
from ._object_graph import ObjectGraph, is_record
from ._plain_objects import PLAIN
from ._variables import own_attributes


class FirstSettings:
    """Attributes of records (dataclasses, as configurations are) that are None before a trace.

    Args:
        objects: the walk made before the step.
    """

    def __init__(self, objects: ObjectGraph) -> None:
        records = {path: item for path, item in objects.objects() if is_record(item) and _has_none(item)}
        self._path_of = {id(item): path for path, item in records.items()}
        self._kinds: list[Any] = list(dict.fromkeys(map(type, records.values())))
        self._reads: defaultdict[tuple[int, str], list[tuple[CodeType, int]]] = defaultdict(list)
        self._looked_through: set[int] = set()

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Inside the block, it is noted where an attribute is read that is None."""
        with contextlib.ExitStack() as stack:
            # all are made before the first is put in: that of a subclass must not call that of its base
            for kind, method in [(kind, self._noting(kind.__getattribute__)) for kind in self._kinds]:
                stack.enter_context(replaced(kind, "__getattribute__", method))
            yield

    def _noting(self, method: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        def attribute(item: Any, name: str) -> Any:
            value = method(item, name)
            if value is None and id(item) in self._path_of:
                reader = sys._getframe(2)  # the frame between is the replacement's
                self._reads[id(item), name].append((reader.f_code, reader.f_lasti))
            elif name == "__dict__" and not is_ours(sys._getframe(2).f_code.co_filename):
                self._looked_through.add(id(item))
            return value

        return attribute

    def among(self, effects: Sequence[Effect]) -> list[SetItem]:
        """The effects that need be carried out once only: with them in place, the step does the same without them."""
        owners = {path: key for key, path in self._path_of.items() if key not in self._looked_through}
        settings = (one for one in effects if isinstance(one, SetItem) and one.path[:-1] in owners)
        return [one for one in settings if self._is_first(owners[one.path[:-1]], one)]

    def _is_first(self, owner: int, setting: SetItem) -> bool:
        name, leaves = str(setting.path[-1]), setting.value.leaves
        reads = self._reads.get((owner, name), [])
        is_plain = len(leaves) == 1 and type(leaves[0]) in PLAIN and leaves[0] is not None
        return is_plain and bool(reads) and all(_only_asks_to_set(*read, name) for read in reads)


def _has_none(item: object) -> bool:
    return any(value is None for value in own_attributes(item).values())


@functools.lru_cache(maxsize=256)
def _only_asks_to_set(code: CodeType, instruction: int, name: str) -> bool:
    """Whether an attribute is read in an `if x.name is None:` under which nothing is done but to set it."""
    line, _, column, _ = next(itertools.islice(code.co_positions(), instruction // 2, None))
    try:
        source = inspect.getsource(code)
        tree = ast.parse(textwrap.dedent(source))
    except (OSError, SyntaxError):  # no file, as in a notebook
        return False
    indent = len(source) - len(source.lstrip())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.left, ast.Attribute):
            read, place = node.test.left, (line or 0) - code.co_firstlineno + 1
            if (read.lineno, read.col_offset + indent, read.attr) == (place, column, name):
                return _is_of_none(node.test) and not node.orelse and _only_sets(node.body, read)
    return False


def _is_of_none(test: ast.Compare) -> bool:
    (other,), (kind,) = test.comparators[:1], test.ops[:1]
    return len(test.ops) == 1 and isinstance(kind, ast.Is) and isinstance(other, ast.Constant) and other.value is None


def _only_sets(body: Sequence[ast.stmt], read: ast.Attribute) -> bool:
    """Whether statements do nothing but to set what was read, whatever other conditions they ask; these call nothing."""
    for statement in body:
        if any(
            isinstance(node, ast.Call | ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for node in ast.walk(statement)
        ):
            return False
        if isinstance(statement, ast.If):
            if not (_only_sets(statement.body, read) and _only_sets(statement.orelse, read)):
                return False
        elif not (isinstance(statement, ast.Assign) and [ast.unparse(one) for one in statement.targets] == [ast.unparse(read)]):
            return False
    return True
