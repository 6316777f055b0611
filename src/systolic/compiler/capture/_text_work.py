"""Whether code works on text of values that do not exist yet: compares it, asks for its length or parts of it, looks it up.

Judged by the source. Python makes texts, and looks into them, in C, where nothing tells of it.
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Literal

Kind = Literal["text", "holder", "any"]
"""A text, something that holds some, or one of both."""
Span = tuple[int, int, int, int]
"""Lines and columns of an expression."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_MAKE_TEXT = frozenset({"str", "repr", "format", "join", "format_map"})
_HOLD = frozenset({"list", "tuple", "zip", "enumerate", "reversed", "map", "filter", "dict", "iter", "deque", "partial"})
_COMPARE = frozenset({"set", "frozenset", "sorted", "max", "min", "hash", "Counter", "fromkeys", "index", "count", "remove"})
_READ = frozenset({"len", "ord", "int", "float", "sum", "any", "all", *_HOLD, *_COMPARE}) - {"partial"}
_LOOK_UP = frozenset({"get", "setdefault", "pop"})
_FILL = frozenset({"append", "extend", "add", "insert", "update", "appendleft", "extendleft", "put"})
_KEEP = _MAKE_TEXT | _HOLD | _FILL | frozenset({
    "log", "log_dict", "print", "write", "writelines", "debug", "info", "warning", "warn", "error", "critical", "exception",
    "setattr", "add_text", "log_text", "log_table", "set_description", "set_postfix", "set_postfix_str", "Path", "isinstance",
    "copy", "deepcopy", "type", "id", "recorded", "host", "len", "rank_zero_info", "rank_zero_warn", "rank_zero_debug",
})  # fmt: skip
_OF_TEXT = frozenset(name for name in vars(str) if not name.startswith("_")) - _MAKE_TEXT


@dataclass
class Taints:
    """The texts that a function gets.

    Attributes:
        spans: expressions that gave some.
        names: variables that held some.
    """

    spans: dict[Span, Kind] = field(default_factory=dict)
    names: dict[str, Kind] = field(default_factory=dict)


class TextWork:
    """Judges functions that belong together: what one leaves in an attribute, another may read.

    Args:
        called: the names of functions that were called and are judged themselves.
        in_doubt: whether a call of a function that nobody knows counts as work.
    """

    def __init__(self, called: frozenset[str], in_doubt: bool) -> None:
        self._called = called
        self._in_doubt = in_doubt
        self.attributes: dict[str, Kind] = {}

    def is_done_by(self, code: CodeType, taints: Taints) -> bool:
        """Whether a function works on the texts that it gets; one without a source counts where it gets any."""
        node = _function_of(code)
        if node is None:
            return bool(taints.names or taints.spans) and self._in_doubt
        names = dict(taints.names)
        while True:
            before = len(names), len(self.attributes)
            judged = _Judged(self, taints, names)
            judged.visit(node)
            if (len(names), len(self.attributes)) == before:
                return judged.works


class _Judged(ast.NodeVisitor):
    """One walk through a function."""

    def __init__(self, work: TextWork, taints: Taints, names: dict[str, Kind]) -> None:
        self._work, self._taints, self._names = work, taints, names
        self.works = False

    def visit_Compare(self, node: ast.Compare) -> None:
        """Texts are compared; which object one is says nothing of them."""
        if not all(isinstance(one, ast.Is | ast.IsNot) for one in node.ops):
            self.works |= any(self._kind(one) is not None for one in (node.left, *node.comparators))
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """A part of a text, or what a text names."""
        self.works |= self._kind(node.value) == "text" or self._kind(node.slice) in ("text", "any")
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        """Texts as keys: equal ones are one."""
        self.works |= any(key is not None and self._kind(key) in ("text", "any") for key in node.keys)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """A method of a text, a function of one, and what a container is filled with."""
        name = _called_name(node.func)
        given = [kind for one in node.args + [k.value for k in node.keywords] if (kind := self._kind(one)) is not None]
        if isinstance(node.func, ast.Attribute):
            owner = self._kind(node.func.value)
            self.works |= name in _OF_TEXT and owner is not None and (owner != "holder" or name in _COMPARE)
            self.works |= name in _LOOK_UP and bool(node.args) and self._kind(node.args[0]) in ("text", "any")
            if given and name in _FILL:
                self._taint(node.func.value, "holder")
        elif given:
            self.works |= (name in _READ and "text" in given) or (name in _READ - _HOLD and "any" in given) or name in _COMPARE
        if given and self._work._in_doubt and name not in _KEEP | self._work._called:
            self.works = True
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """An assigned variable holds the same."""
        for target in node.targets:
            self._assign(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """The same with an annotation."""
        if node.value is not None:
            self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """The same, added."""
        self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        """The same within an expression."""
        self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        """Each of something that holds texts may be one; a text has signs."""
        self._each(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """The same in a comprehension."""
        self._each(node.target, node.iter)
        self.generic_visit(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        """Equal texts are one."""
        self.generic_visit(node)
        self.works |= self._kind(node.elt) is not None

    def visit_DictComp(self, node: ast.DictComp) -> None:
        """The same of keys."""
        self.generic_visit(node)
        self.works |= self._kind(node.key) is not None

    def _each(self, target: ast.expr, iterated: ast.expr) -> None:
        kind = self._kind(iterated)
        if kind is None:
            return
        name = _called_name(iterated.func) if isinstance(iterated, ast.Call) else ""
        if isinstance(iterated, ast.Call) and isinstance(target, ast.Tuple) and name in ("zip", "enumerate"):
            counted = name == "enumerate"
            for one, part in zip(target.elts[counted:], iterated.args, strict=False):
                self._each(one, part)
            return
        self.works |= kind == "text"
        self._taint(target, "any")

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for one, other in zip(target.elts, value.elts, strict=False):
                self._assign(one, other)
        elif (kind := self._kind(value)) is not None:
            self._taint(target, "any" if isinstance(target, ast.Tuple | ast.List) else kind)

    def _taint(self, target: ast.expr, kind: Kind) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._taint(one, kind)
        elif isinstance(target, ast.Starred | ast.Subscript):
            self._taint(target.value, "holder")
        elif isinstance(target, ast.Name):
            self._names.setdefault(target.id, kind)
        elif isinstance(target, ast.Attribute):
            self._work.attributes.setdefault(target.attr, kind)

    def _kind(self, node: ast.expr) -> Kind | None:
        """The kind that an expression's value is; None where it has nothing to do with texts."""
        if (kind := self._given(node)) is not None:
            return kind
        match node:
            case ast.Name(id=name):
                return self._names.get(name)
            case ast.Attribute(value=value, attr=name):
                return self._work.attributes.get(name) or ("any" if self._kind(value) is not None else None)
            case ast.JoinedStr():
                inner = [one.value for one in node.values if isinstance(one, ast.FormattedValue)]
                return "text" if self._first(inner) else None
            case ast.BinOp(left=left, right=right, op=op):
                kind = self._first([left, right])
                return "text" if kind is not None and isinstance(op, ast.Mod) else kind
            case ast.Subscript(value=value):
                kind = self._kind(value)
                return "any" if kind == "holder" else kind
            case ast.Call():
                return self._kind_of_call(node)
            case ast.ListComp(elt=inner) | ast.SetComp(elt=inner) | ast.GeneratorExp(elt=inner) | ast.DictComp(value=inner):
                return "holder" if self._kind(inner) is not None else None
            case ast.List(elts=inner) | ast.Tuple(elts=inner) | ast.Set(elts=inner):
                return "holder" if self._first(inner) is not None else None
            case ast.Dict():
                return "holder" if self._first([*filter(None, node.keys), *node.values]) is not None else None
            case ast.IfExp(body=body, orelse=other):
                return self._first([body, other])
            case ast.BoolOp(values=inner):
                return self._first(inner)
            case ast.NamedExpr(value=inner) | ast.Starred(value=inner) | ast.Await(value=inner):
                return self._kind(inner)
            case _:
                return None

    def _kind_of_call(self, node: ast.Call) -> Kind | None:
        name = _called_name(node.func)
        given = self._first([*node.args, *(k.value for k in node.keywords)])
        owner = self._kind(node.func.value) if isinstance(node.func, ast.Attribute) else None
        if name in _MAKE_TEXT:
            return "text" if given is not None or owner is not None else None
        if name in _HOLD | _COMPARE and given is not None:
            return "holder"
        return (
            owner if owner == "holder" else "any" if owner is not None or (given is not None and self._work._in_doubt) else None
        )

    def _given(self, node: ast.expr) -> Kind | None:
        span = _span_of(node)
        if isinstance(node, ast.JoinedStr) and any(_is_within(one, span) for one in self._taints.spans):
            return "text"
        return self._taints.spans.get(span)

    def _first(self, nodes: list[ast.expr]) -> Kind | None:
        return next((kind for one in nodes if (kind := self._kind(one)) is not None), None)


def span_at(code: CodeType, instruction: int) -> Span | None:
    """The place of the expression that an instruction stands for."""
    line, end_line, column, end_column = next(itertools.islice(code.co_positions(), instruction // 2, None))
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return line, end_line, column, end_column


def _span_of(node: ast.expr) -> Span:
    return node.lineno, node.end_lineno or node.lineno, node.col_offset, node.end_col_offset or node.col_offset


def _is_within(inner: Span, outer: Span) -> bool:
    return (outer[0], outer[2]) <= (inner[0], inner[2]) and (inner[1], inner[3]) <= (outer[1], outer[3])


def _called_name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""


def _function_of(code: CodeType) -> ast.AST | None:
    """The source of a function; of a comprehension or lambda that of the function around it, if there is one."""
    line, around = code.co_firstlineno, list[ast.AST]()
    for node in _functions_in(code.co_filename):
        if isinstance(node, ast.Lambda):
            continue
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        if node.name == code.co_name and first == line:
            return node
        if first <= line <= (node.end_lineno or line):
            around.append(node)
    if not code.co_name.startswith("<"):
        return None
    lambdas = [one for one in _functions_in(code.co_filename) if isinstance(one, ast.Lambda) and one.lineno == line]
    return around[-1] if around else ast.Module(body=[ast.Expr(one) for one in lambdas], type_ignores=[]) if lambdas else None


def _functions_in(filename: str) -> tuple[_Function, ...]:
    return _functions_of("".join(linecache.getlines(filename)))


@functools.lru_cache(maxsize=64)
def _functions_of(source: str) -> tuple[_Function, ...]:
    def of(node: ast.AST) -> Iterator[_Function]:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, _Function):
                yield inner
            yield from of(inner)

    try:
        return tuple(of(ast.parse(source)))
    except SyntaxError:
        return ()
