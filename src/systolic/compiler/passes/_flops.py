"""Floating point operations that the mathematics of a step needs: model FLOPs.

The rule: matrix products and convolutions of forward and backward, as the captured graph holds them, two operations for
each multiplication with its addition (PyTorch's own formulas, `torch.utils.flop_counter`). A product that is computed
again from the same values (activation checkpointing) counts once. Attention counts every score, causal or not. In JAX
functions (attention, recurrent layers, `jax_op`) the products of the plain function count, loops by their length. What
is pointwise or a reduction does not count.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import jax
import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from ...runtime import jax_dtype
from ...utilities._jax_internals import jaxprs_in_params
from ...utilities._torch_internals import OpOverload
from ..kernels import Kind, described, not_before

_JAX_CALL = torch.ops.systolic.jax_call.default


def model_flops(graph: fx.Graph) -> int:
    """Floating point operations of one run of a captured graph, over the whole batch.

    Args:
        graph: aten ops with their results' shapes in `meta["val"]`.
    """
    return sum(node_flops(node) for node in _distinct(graph))


def _distinct(graph: fx.Graph) -> list[fx.Node]:
    """The calls of a graph without those that compute what an earlier one has computed from the same values."""
    known: dict[Any, fx.Node] = {}
    same: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        held = _held_back(node)
        if held is not None:
            same[node] = same.get(held, held)
            continue
        arguments = fx.map_arg((node.args, node.kwargs), lambda source: same.get(source, source))
        if node.target is _JAX_CALL:
            # the number of the call, by which a gradient finds what it left, is none of its values
            arguments = arguments[0][:2], arguments[1]
        key = f"{node.target} {arguments} {node.meta.get('draw', '')}"
        same[node] = known.setdefault(key, node)
    return list(known.values())


def _held_back(node: fx.Node) -> fx.Node | None:
    """The value that comes through a barrier."""
    source, number = node.args if node.target is operator.getitem else (None, None)
    if not isinstance(source, fx.Node) or source.target is not not_before:
        return None
    values: Any = source.args[0]
    return values[number]


def node_flops(node: fx.Node) -> int:
    """Floating point operations of one op of a captured graph."""
    if not isinstance(node.target, OpOverload):
        return 0
    if node.target is _JAX_CALL:
        kinds = tuple((tuple(t.shape), t.dtype) for t in (source.meta["val"] for source in node.args[0]))  # type: ignore[union-attr]
        return _call_flops(int(node.args[1]), kinds)  # type: ignore[arg-type]
    formula = flop_registry.get(node.target.overloadpacket)
    if formula is None:
        return 0
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
    return int(formula(*args, **kwargs, out_val=node.meta["val"]))


@functools.lru_cache(maxsize=1024)
def _call_flops(number: int, kinds: tuple[Kind, ...]) -> int:
    """Products of a JAX function; of a gradient those that the forward did not already do."""
    function = described(number)
    arrays = [jax.ShapeDtypeStruct(shape, jax_dtype(dtype)) for shape, dtype in kinds]
    with jax.enable_x64(True):
        own = _jaxpr_flops(jax.make_jaxpr(function.plain)(*arrays).jaxpr)
        if function.forward is None:
            return own
        forward = described(function.forward).plain
        inputs = arrays[: function.arity_of_forward()]
        return max(0, own - _jaxpr_flops(jax.make_jaxpr(forward)(*inputs).jaxpr))


def _jaxpr_flops(jaxpr: Any) -> int:
    return sum(_equation_flops(equation) for equation in jaxpr.eqns)


def _equation_flops(equation: Any) -> int:
    name, parameters = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = parameters["dimension_numbers"]
        left = equation.invars[0].aval.shape
        return 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        outputs = kernel[parameters["dimension_numbers"].rhs_spec[0]]
        return 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(kernel) // outputs
    if name == "cond":
        return max(_jaxpr_flops(branch.jaxpr) for branch in parameters["branches"])
    times = parameters["length"] if name == "scan" else 1
    return times * sum(_jaxpr_flops(inner) for inner in jaxprs_in_params(parameters))
