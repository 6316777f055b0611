"""Run an aten graph on JAX values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import fx

from ._alike_part import AlikePart, run_part
from ._channels_last import ordinary
from ._context import LoweringContext, lowering_context
from ._evaluate import evaluate
from ._layer_loop import LayerLoop, run_loop
from ._layer_values import Values

LoopStep = fx.Node | LayerLoop
"""What is done at once where layers are loops: one op, or a whole loop over layers."""

Step = LoopStep | AlikePart
"""What is done at once: one op, a whole loop over layers, or a call of what several parts do."""


def interpret(graph: fx.Graph, inputs: Sequence[Any], context: LoweringContext, order: Sequence[Step] | None = None) -> Any:
    """Evaluate `graph` with each op replaced by its lowering.

    Args:
        graph: functional aten ops; placeholders in the order of `inputs`.
        inputs: one `jax.Array` (or number) per placeholder.
        context: what lowerings may ask about the program.
        order: what is done, one after another, where it is not just the graph's nodes.

    Returns:
        What the graph returns, with `jax.Array`s for tensors.
    """
    steps = list(graph.nodes) if order is None else order
    values = Values()
    remaining = iter(inputs)
    last_use = _last_uses(steps)
    with lowering_context(context):
        for step in steps:
            if isinstance(step, LayerLoop):
                run_loop(step, values, context)
            elif isinstance(step, AlikePart):
                run_part(step, values, context)
            elif step.op == "placeholder":
                values[step] = next(remaining)
            elif step.op == "call_function":
                values[step] = evaluate(step, values, context)
            elif step.op == "output":
                result = fx.map_arg(step.args[0], lambda source: ordinary(values[source]))
                return tuple(result) if isinstance(result, (list, tuple)) else result
            else:
                raise AssertionError(f"unexpected node {step.op} {step.target} in a captured graph")
            for dead in last_use.get(step, ()):
                values.pop(dead, None)  # what loops hand to each other as a whole was never there alone
    raise AssertionError("graph without output")


def inputs_of(step: Step) -> Iterable[fx.Node]:
    """The nodes that a step takes."""
    if isinstance(step, AlikePart):
        return step.own.inputs
    return step.inputs() if isinstance(step, LayerLoop) else step.all_input_nodes


def _last_uses(steps: Sequence[Step]) -> dict[Step, list[fx.Node]]:
    """For every step the inputs that nobody after it needs: they are dropped, so that a trace holds few tracers."""
    last: dict[fx.Node, Step] = {}
    for step in steps:
        for source in inputs_of(step):
            last[source] = step
    uses: dict[Step, list[fx.Node]] = {}
    for source, user in last.items():
        uses.setdefault(user, []).append(source)
    return uses
