"""Questions that a step asks about values while it is traced (`if loss > 1`, `int(mask.sum())`), answered for this batch.

A trace takes one way through the step's Python code. Where a value decides the way, the value of this batch is computed on the
host, from the ops recorded so far; the trace goes on with the answer. The answer is a guess about every other batch, and about
this one, because the devices may round otherwise: the program computes the condition itself and keeps the old state where the
answer is another one, so that the batch can be run again under the program of the other way. A question whose other answer only
raises is not computed on the host: the step goes on, and the program checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, overload

import jax
import numpy as np
import sympy
import torch
from torch import fx

from ...runtime import reading_for_main_thread, to_jax_array, to_torch_tensor
from ...utilities._torch_internals import OpOverload, get_proxy_mode, node_of, tree_map_only
from .._errors import user_line_of
from ..lowering import LoweringContext, interpret
from ..passes import needed_for
from ._host_expressions import ARRAY_NAMES, HostExpression, compiled_expression
from ._only_raises import answer_to_go_on
from ._size_reads import asks_for_size

Answer = bool | int


@dataclass(frozen=True)
class Speculation:
    """A condition on values of the devices under which a graph is valid.

    Attributes:
        condition: from the values of `outputs` to whether it holds; takes numbers and JAX arrays alike.
        outputs: the graph's outputs that are the values.
        text: names the condition; equal in traces that asked the same question at the same place.
        line: where in the user's code it was asked.
        holds: what it has to be.
        number: from the values of `outputs` to the integer that was asked for; None where a condition was.
        size: the size of an op's result that was answered; None where something else was asked for.
        only_raises: whether a step for which it does not hold only raises an error.
        always_holds: whether it does for every batch, as that of a size in a graph for all sizes may.
    """

    condition: HostExpression
    outputs: tuple[int, ...]
    text: str
    line: str
    holds: bool
    number: HostExpression | None
    size: int | None = None
    only_raises: bool = False
    always_holds: bool = False

    @property
    def is_size(self) -> bool:
        """Whether it is the size of an op's result that was asked for."""
        return self.size is not None


@dataclass(frozen=True)
class KnownAnswer:
    """The answer to a question that a program asked, for a trace that asks the same one at the same place of its own.

    Attributes:
        answer: None where only the question is known.
        line: where it was asked.
        is_number: whether an integer was asked for, and not whether a condition holds.
    """

    answer: Answer | None
    line: str
    is_number: bool

    @classmethod
    def to(cls, question: Speculation, answer: Answer | None) -> KnownAnswer:
        """An answer to a program's question."""
        return cls(answer, question.line, question.number is not None)


@dataclass(frozen=True)
class _Asked:
    atom: sympy.Basic
    nodes: dict[sympy.Basic, fx.Node]
    line: str
    holds: bool
    number: sympy.Basic | None = None
    size: int | None = None
    only_raises: bool = False


class Oracle:
    """Answers questions of one trace.

    Args:
        inputs: the values of the graph's tensor placeholders, in order; asked for when there is a question. None where nobody
            has them: then only questions whose other answer raises are answered.
        forced: answers to the first questions, as far as a program has found them out.
    """

    def __init__(self, inputs: Callable[[], Sequence[torch.Tensor]] | None, forced: Sequence[KnownAnswer] = ()) -> None:
        self._inputs = inputs
        self._forced = list(forced)
        self._given: Sequence[torch.Tensor] | None = None
        self._values: dict[fx.Node, Any] = {}
        self._asked: list[_Asked] = []

    def decide(self, expression: sympy.Basic, is_condition: bool) -> sympy.Basic | None:
        """The value of a condition or number; None for a real number, of which no two batches have the same."""
        if get_proxy_mode() is None:  # PyTorch asks while it finds the shape of an op's result
            return None
        made = nodes_of_symbols()
        if any(symbol not in made for symbol in expression.free_symbols):  # the size of a tensor
            return None
        if is_condition and not isinstance(expression, sympy.And | sympy.Or):
            go_on = answer_to_go_on()
            if go_on is not None:
                return self._atom(expression, go_on)
        if self._inputs is None:
            return None
        if isinstance(expression, sympy.And | sympy.Or):
            return self._junction(expression)
        if isinstance(expression, sympy.Not):
            return sympy.Not(self._atom(expression.args[0]))
        if is_condition:
            return self._atom(expression)
        return self._integer(expression) if expression.is_integer else None

    def _junction(self, expression: sympy.Basic) -> sympy.Basic:
        stops = isinstance(expression, sympy.Or)
        for part in expression.args:
            if bool(self.decide(part, True)) is stops:  # as Python does it, which asks no more
                return sympy.true if stops else sympy.false
        return sympy.false if stops else sympy.true

    def _integer(self, expression: sympy.Basic) -> sympy.Basic:
        nodes, varies = self._sources(expression)
        line = user_line_of() if varies else ""
        known = self._known(line, is_number=True) if varies else None
        value = sympy.Integer(int(self._evaluated(expression, nodes) if known is None else known))
        if varies:
            asked = sympy.Eq(expression, value, evaluate=False)
            size = int(value) if asks_for_size() else None
            self._asked.append(_Asked(asked, nodes, line, True, expression, size))
        return value

    def _atom(self, atom: sympy.Basic, go_on: bool | None = None) -> sympy.Basic:
        """The answer to a condition: the known one, else the one to go on, else that of this batch's values."""
        nodes, varies = self._sources(atom)
        if not varies:
            return sympy.true if self._evaluated(atom, nodes) else sympy.false
        line = user_line_of()
        known = self._known(line, is_number=False)
        chosen = go_on if known is None else known
        answer = bool(self._evaluated(atom, nodes) if chosen is None else chosen)
        self._asked.append(_Asked(atom, nodes, line, answer, only_raises=answer is go_on))
        return sympy.true if answer else sympy.false

    def _known(self, line: str, is_number: bool) -> Answer | None:
        """The answer that a program has found to the question that comes now; None where it has none.

        A trace may ask otherwise than the program's: where an integer could stay a symbol on the way that the program took,
        it may not on this one. From there on the program's answers are to questions that nobody asks.
        """
        place = len(self._asked)
        if place >= len(self._forced):
            return None
        known = self._forced[place]
        if (known.line, known.is_number) != (line, is_number):
            del self._forced[place:]
            return None
        return known.answer

    def _evaluated(self, expression: sympy.Basic, nodes: dict[sympy.Basic, fx.Node]) -> Any:
        values = [self._value(node) for node in nodes.values()]
        return compiled_expression(expression, list(nodes))([v.item() if isinstance(v, torch.Tensor) else v for v in values])

    @property
    def has_given(self) -> bool:
        """Whether user code holds numbers of the trace that are values of the devices, or was told some."""
        return bool(self._asked) or any(is_item(node) for node in _tracer().graph.nodes)

    @property
    def knows_batch(self) -> bool:
        """Whether somebody has the values of this batch."""
        return self._inputs is not None

    @property
    def asked(self) -> int:
        """How many questions had answers that another batch may not have."""
        return len(self._asked)

    def value(self, tensor: torch.Tensor) -> torch.Tensor:
        """Value of a tensor of the trace for this batch."""
        return self._value(node_of(tensor, _tracer()))

    def number(self, symbolic: torch.SymInt | torch.SymFloat | torch.SymBool) -> Any:
        """Value of a symbolic number for this batch; None where it is of tensors that nobody has."""
        expression = symbolic.node.expr
        nodes, _ = self._sources(expression)
        if self._inputs is None and any(map(_is_given_tensor, needed_for(list(nodes.values())))):
            return None
        return self._evaluated(expression, nodes)

    def _sources(self, expression: sympy.Basic) -> tuple[dict[sympy.Basic, fx.Node], bool]:
        """The nodes whose values an expression is of, and whether any depends on what differs from step to step."""
        made = nodes_of_symbols()
        nodes = {symbol: made[symbol] for symbol in sorted(expression.free_symbols, key=str)}
        return nodes, any(map(_varies, needed_for(list(nodes.values()))))

    def _value(self, wanted: fx.Node) -> Any:
        needed = needed_for([wanted]) - self._values.keys()
        ordered = [node for node in wanted.graph.nodes if node in needed]
        placeholders = {node: i for i, node in enumerate(n for n in wanted.graph.nodes if n.op == "placeholder")}
        root = _tracer().root
        # of another thread the trace takes no notice: neither of its ops nor of what they draw
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(self._compute, ordered, placeholders, root).result()
        return self._values[wanted]

    def _compute(self, nodes: Sequence[fx.Node], placeholders: dict[fx.Node, int], root: torch.nn.Module) -> None:
        with torch.no_grad():
            if self._given is None and self._inputs is not None:
                with reading_for_main_thread():
                    self._given = self._inputs()
            for node in nodes:
                self._values[node] = self._run(node, placeholders, root)

    def _run(self, node: fx.Node, placeholders: dict[fx.Node, int], root: torch.nn.Module) -> Any:
        if node.op == "placeholder":
            if not _is_given_tensor(node):
                return _number(node.meta["val"])
            assert self._given is not None, "asked for before"
            return self._given[placeholders[node]]
        if node.op == "get_attr":
            return getattr(root, str(node.target)).detach().clone()
        if isinstance(node.target, OpOverload) and (
            node.target.namespace == "systolic" or _is_random(node) or _breaks_ties(node)
        ):
            return self._lowered(node)
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: self._values[n])
        assert callable(node.target), f"{node.op} does not occur in a trace"
        # strides on the host may be others than in the trace, where a view was possible
        return (torch.ops.aten.reshape.default if node.target is torch.ops.aten.view.default else node.target)(*args, **kwargs)

    def _lowered(self, node: fx.Node) -> Any:
        """The value of an op of ours, which PyTorch has no kernel for, of one that draws, or that chooses among equal elements.

        PyTorch's generator belongs to the whole process, and a loader may draw from it in another thread. What is drawn here is
        not what the devices will draw: the program finds out where that matters.
        """
        graph, inputs = fx.Graph(), node.all_input_nodes
        copies = {one: graph.placeholder(one.name) for one in inputs}
        for one, copied in copies.items():
            copied.meta = dict(one.meta)
        graph.output((graph.node_copy(node, lambda one: copies[one]),))
        values = [self._values[one] for one in inputs]
        arrays = [to_jax_array(value) if isinstance(value, torch.Tensor) else value for value in values]
        with jax.enable_x64(True):
            (result,) = interpret(graph, arrays, LoweringContext(jax.random.key(len(self._values))))
        # host sync: a value is asked for
        return tree_map_only((jax.Array, np.ndarray), lambda array: to_torch_tensor(np.array(array)), result)

    def finish(self, graph: fx.Graph) -> list[Speculation]:
        """Make the values of all questions outputs of the traced graph, behind those that are there."""
        output = next(iter(reversed(graph.nodes)))
        values = list(output.args[0])  # type: ignore[call-overload]
        found: list[Speculation] = []
        for asked in self._asked:
            indices = tuple(range(len(values), len(values) + len(asked.nodes)))
            values += asked.nodes.values()
            condition = compiled_expression(asked.atom, list(asked.nodes), ARRAY_NAMES)
            number = None if asked.number is None else compiled_expression(asked.number, list(asked.nodes), ARRAY_NAMES)
            text = f"{_canonical(asked.atom, list(asked.nodes))} at {asked.line}"
            found.append(Speculation(condition, indices, text, asked.line, asked.holds, number, asked.size, asked.only_raises))
        output.args = (tuple(values) if isinstance(output.args[0], tuple) else values,)
        return found


@overload
def known_number(symbolic: torch.SymInt) -> int | None: ...


@overload
def known_number(symbolic: torch.SymFloat) -> float | None: ...


def known_number(symbolic: torch.SymInt | torch.SymFloat) -> float | None:
    """The value of a number in which nothing has a part that may differ from step to step; None for any other."""
    oracle = Oracle(lambda: ())
    nodes, varies = oracle._sources(symbolic.node.expr)
    if varies:
        return None
    value = oracle._evaluated(symbolic.node.expr, nodes)
    return int(value) if isinstance(symbolic, torch.SymInt) else float(value)


def _canonical(atom: sympy.Basic, symbols: Sequence[sympy.Basic]) -> str:
    return str(atom.xreplace({symbol: sympy.Symbol(f"v{i}") for i, symbol in enumerate(symbols)}))


def _tracer() -> Any:
    mode = get_proxy_mode()
    assert mode is not None, "questions are asked while a step is traced"
    return mode.tracer


def nodes_of_symbols() -> dict[Any, fx.Node]:
    """By symbol the node that it is the value of: `.item()`, or a number that the host gives."""
    found: dict[Any, fx.Node] = {}
    for node in _tracer().graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) and _makes_number(node):
            found.update((symbol, node) for symbol in value.node.expr.free_symbols)
    return found


def _makes_number(node: fx.Node) -> bool:
    return node.op == "placeholder" or is_item(node)


def is_item(node: fx.Node) -> bool:
    """Whether a node takes a number out of a tensor: `.item()`."""
    return node.target is torch.ops.aten._local_scalar_dense.default


def _varies(node: fx.Node) -> bool:
    """Whether a node's own value may differ from step to step: arguments, state, tensors of a closure, random numbers."""
    return node.op in ("placeholder", "get_attr") or _is_random(node)


def _is_given_tensor(node: fx.Node) -> bool:
    return node.op == "placeholder" and isinstance(node.meta["val"], torch.Tensor)


def _is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _breaks_ties(node: fx.Node) -> bool:
    """Whether an op chooses among equal elements, as scores of padding are: the host has to guess what the devices take."""
    return node.target is torch.ops.aten.topk.default


def _number(value: object) -> Any:
    return value.node.hint if isinstance(value, torch.SymInt | torch.SymFloat) else value
