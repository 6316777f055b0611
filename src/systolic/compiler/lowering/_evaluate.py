"""One node of an aten graph on JAX values."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch import fx

from ...runtime import jax_dtype
from ...utilities._torch_internals import OpOverload, sym_functions
from ._array_math import ArrayMath
from ._channels_last import ChannelsLast, layout_aware, ordinary
from ._context import LoweringContext
from ._node_meta import LINE, SCOPE
from ._table import find_lowering


def evaluate(node: fx.Node, values: Mapping[fx.Node, Any], context: LoweringContext) -> Any:
    """The result of an op, where it has to lie.

    Args:
        node: a call of a function.
        values: of its inputs, at least.
        context: what lowerings may ask about the program.
    """
    result = _call(node, values, context)
    result = result if context.placement is None else context.placement.of_result(node, result)
    return result if context.writes is None else context.writes.of_result(node, result, context.checks)


def _call(node: fx.Node, values: Mapping[fx.Node, Any], context: LoweringContext) -> Any:
    target = node.target
    if not isinstance(target, OpOverload):
        # getitem, and the arithmetic on symbolic numbers that the tracer records as plain Python functions
        args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
        return _symbolic(target)(*args, **kwargs)
    lowering = find_lowering(target)
    assert lowering is not None, f"{target} passed capture without a lowering"
    expected = node.meta.get("val")
    context.output, context.node = expected, node
    aware = layout_aware(node, lowering)
    load = _loader(node, values, context)
    args, kwargs = fx.map_arg((node.args, node.kwargs), load if aware else lambda source: ordinary(load(source)))
    scope, line = context.named(node.meta.get(SCOPE, "")), node.meta.get(LINE) if context.names_lines else None
    with jax.named_scope(scope) if scope else contextlib.nullcontext(), _named_line(line):
        return _as_announced((aware or lowering)(*args, **kwargs), expected, target)


def _loader(node: fx.Node, values: Mapping[fx.Node, Any], context: LoweringContext) -> Callable[[fx.Node], Any]:
    placement = context.placement
    if placement is None:
        return values.__getitem__
    return lambda source: placement.for_user(node, source, values, context.gathered)


def _named_line(line: str | None) -> contextlib.AbstractContextManager[Any]:
    """Names what is traced inside after a line of the user's code: `.../[file:line]/add`."""
    return jax.named_scope(f"[{line}]") if line else contextlib.nullcontext()


def _symbolic(target: object) -> Any:
    return _SYMBOLIC.get(target, target)


def _of_arrays(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function of symbolic numbers, which are arrays where the program computes them and Python's numbers elsewhere."""
    function = getattr(ArrayMath, name)
    return lambda x: function(x) if isinstance(x, jax.Array) else original(x)


_SYMBOLIC: dict[Any, Any] = {
    torch.sym_float: lambda x: x.astype(jnp.float32) if isinstance(x, jax.Array) else float(x),
    torch.sym_int: lambda x: x.astype(jnp.int64) if isinstance(x, jax.Array) else int(x),
    torch.sym_max: jnp.maximum,
    torch.sym_min: jnp.minimum,
    torch.sym_ite: jnp.where,
    torch.sym_not: jnp.logical_not,
    **{function: _of_arrays(function, function.__name__) for function in (math.floor, math.ceil, math.trunc)},
    **{function: _of_arrays(function, name) for name, function in sym_functions.items()},
}


def _as_announced(value: Any, expected: object, target: OpOverload) -> Any:
    """Give a result the dtype that PyTorch announced; a wrong shape is our defect and stops here."""
    if value is None:  # a gradient that nobody asked for; some ops announce it all the same
        return None
    if isinstance(expected, torch.Tensor):
        dtype = jax_dtype(expected.dtype)
        value = value.astype(dtype) if isinstance(value, ChannelsLast) else jnp.asarray(value, dtype)
        assert value.shape == tuple(expected.shape), (
            f"lowering of {target} gave shape {value.shape}, PyTorch has {tuple(expected.shape)}"
        )
        return value
    if isinstance(expected, (list, tuple)):
        assert len(value) == len(expected), f"lowering of {target} gave {len(value)} results, expected {len(expected)}"
        return tuple(_as_announced(v, e, target) for v, e in zip(value, expected, strict=True))
    return value
