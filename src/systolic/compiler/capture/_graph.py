"""From the tracer's raw graph to one with named inputs and nothing superfluous."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.graph import CodeGen

from ..passes import drop_unused, hold_back_recomputations, join_cross_entropy, rewrite_adam_updates, rewrite_bias_corrections
from ._speculation import is_item
from ._symbols import HostExpression, SymbolTable

aten = torch.ops.aten


@dataclass(frozen=True)
class SlotInput:
    """A placeholder for a slot's value."""

    slot: int


@dataclass(frozen=True)
class TensorInput:
    """A placeholder for an argument of the call (`leaf`), or for a tensor found on the way (`constant`)."""

    leaf: int | None = None
    constant: torch.Tensor | None = None


@dataclass
class CleanGraph:
    """A graph with its inputs.

    Attributes:
        graph: placeholders for `inputs`, then for `scalars`; the output is a flat tuple.
        inputs: the tensors that are really used.
        scalars: host functions for the numbers that are really used.
        output_sources: by output: ("slot", i) when it is just that input, else None.
    """

    graph: fx.Graph
    inputs: list[SlotInput | TensorInput]
    scalars: list[HostExpression]
    output_sources: list[tuple[str, int] | None]


def clean_graph(module: fx.GraphModule, slot_count: int, leaf_count: int, table: SymbolTable) -> CleanGraph:
    """Remove what nobody uses; make constants inputs and host-known numbers scalars."""
    graph = module.graph
    graph.set_codegen(CodeGen())
    # first: autograd puts `detach` between a result and the backward op that saved it, where the patterns below look for the
    # result itself; the gradient of cross-entropy would stay in two ops
    _skip_aliases(graph)
    rewrite_bias_corrections(graph)
    rewrite_adam_updates(graph)
    join_cross_entropy(graph)
    # by a rule of our own: PyTorch's keeps every op that draws, and for masks that nobody uses the program would take a
    # random key and go on to the next one
    drop_unused(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    tensors = slot_count + leaf_count
    assert len(placeholders) == tensors + len(table.symbols), "the tracer added or dropped inputs"
    inputs: list[SlotInput | TensorInput] = []
    sources: dict[fx.Node, tuple[str, int]] = {}
    for index, node in enumerate(placeholders[:tensors]):
        if index < slot_count:
            sources[node] = ("slot", index)
        if not node.users:
            graph.erase_node(node)
        elif index < slot_count:
            inputs.append(SlotInput(index))
        else:
            inputs.append(TensorInput(leaf=index - slot_count))
    inputs += _constants_to_inputs(module, graph)
    scalars = _numbers_to_scalars(graph, table)
    for node in reversed(placeholders[tensors:]):
        graph.erase_node(node)
    drop_unused(graph)
    hold_back_recomputations(graph, sources)
    outputs = [node for node in graph.nodes if node.op == "output"][0].args[0]
    output_sources = [sources.get(value) if isinstance(value, fx.Node) else None for value in outputs]
    return CleanGraph(graph, inputs, scalars, output_sources)


def _skip_aliases(graph: fx.Graph) -> None:
    """`detach` and `alias` mean something to autograd, which has done its work."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in (aten.detach.default, aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _first_call(graph: fx.Graph) -> fx.Node:
    return next(node for node in graph.nodes if node.op != "placeholder")


def _constants_to_inputs(module: fx.GraphModule, graph: fx.Graph) -> list[TensorInput]:
    """Tensors that are no state (a mask in a closure) become inputs, so that later changes of them are seen."""
    constants: dict[int, fx.Node] = {}
    found: list[TensorInput] = []
    for node in [n for n in graph.nodes if n.op == "get_attr"]:
        value = getattr(module, str(node.target))
        if id(value) not in constants:
            with graph.inserting_before(_first_call(graph)):
                placeholder = graph.placeholder(f"constant_{len(found)}")
            placeholder.meta = dict(node.meta)
            constants[id(value)] = placeholder
            found.append(TensorInput(constant=value))
        node.replace_all_uses_with(constants[id(value)])
        graph.erase_node(node)
    return found


def _numbers_to_scalars(graph: fx.Graph, table: SymbolTable) -> list[HostExpression]:
    """Arithmetic on Python numbers is done by the host, in double precision; the program gets the results."""
    scalars: list[HostExpression] = []
    known: dict[Any, fx.Node] = {}
    # the tracer takes a value of the devices for known once a condition has said which it is; the condition needs the value
    host_nodes = [node for node in graph.nodes if table.is_host_known(node.meta.get("val")) and not is_item(node)]
    for node in host_nodes:
        value = node.meta["val"]
        for user in [user for user in node.users if not table.is_host_known(user.meta.get("val"))]:
            expression = value.node.expr
            if expression not in known:
                with graph.inserting_before(_first_call(graph)):
                    known[expression] = graph.placeholder(f"number_{len(scalars)}")
                known[expression].meta = {"val": value}
                scalars.append(table.expression(value))
            user.replace_input_with(node, known[expression])
    for node in reversed([node for node in host_nodes if node.op != "placeholder"]):
        graph.erase_node(node)
    return scalars
