"""Formulas of optimizers that lose digits on the device, replaced by equal ones that do not.

In eager PyTorch an optimizer's step count is a Python number, so that bias corrections are computed in double
precision. In a compiled step the count lives on the device in float32, where `1 - beta ** step` cancels: with
beta = 0.999 the first steps keep four digits. The replacements below keep all digits that float32 has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch import fx

from ...utilities._torch_internals import OpOverload, sym_log2
from ..lowering import lowers
from ..lowering._operand import Real

aten = torch.ops.aten

VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
"""The same numbers in another shape."""

_LIBRARY = torch.library.Library("systolic", "FRAGMENT")
_LIBRARY.define("one_minus_pow(Tensor exponent, float log2_base) -> Tensor", tags=(torch.Tag.pointwise,))
_LIBRARY.define("rectified_length(Tensor step, float beta) -> Tensor", tags=(torch.Tag.pointwise,))
_ONE_MINUS_POW = torch.ops.systolic.one_minus_pow.default
_RECTIFIED_LENGTH = torch.ops.systolic.rectified_length.default


@torch.library.impl(_LIBRARY, "one_minus_pow", "CompositeExplicitAutograd")
def _one_minus_pow(exponent: torch.Tensor, log2_base: float) -> torch.Tensor:
    return -torch.expm1(exponent * (log2_base * math.log(2)))


@lowers(_ONE_MINUS_POW)
def _lower_one_minus_pow(exponent: jax.Array, log2_base: Real) -> jax.Array:
    return -jnp.expm1(exponent.astype(jnp.float32) * jnp.asarray(log2_base * math.log(2), jnp.float32))


@torch.library.impl(_LIBRARY, "rectified_length", "CompositeExplicitAutograd")
def _rectified_length(step: torch.Tensor, beta: float) -> torch.Tensor:
    exact = step.double()
    return (2 / (1 - beta) - 1 - 2 * exact * beta**exact / (1 - beta**exact)).to(torch.float32)


@lowers(_RECTIFIED_LENGTH)
def _lower_rectified_length(step: jax.Array, beta: float) -> jax.Array:
    """RAdam's rho: with u = -step log(beta) it is `offset + slope * (1 - u / expm1(u))`, the bracket being ~ u / 2."""
    decay = -math.log(beta)
    offset = 2 / (1 - beta) - 1 - 2 / decay
    u = step.astype(jnp.float32) * jnp.float32(decay)
    square = u * u
    series = u / 2 - square / 12 * (1 - square / 60 * (1 - square / 42 * (1 - square / 40)))
    bracket = jnp.where(u < 0.5, series, 1 - u / jnp.expm1(jnp.maximum(u, 0.5)))
    return jnp.float32(offset) + jnp.float32(2 / decay) * bracket


def rewrite_bias_corrections(graph: fx.Graph) -> None:
    """Replace `1 - beta ** step` and RAdam's `rho` wherever they occur; nodes without users stay for the clean-up."""
    for power in [node for node in graph.nodes if node.op == "call_function" and node.target is aten.pow.Scalar]:
        if _decays(power.args[0]) and power.meta["val"].dtype == torch.float32:
            _rewrite_length(graph, power)
            for user in list(power.users):
                _rewrite_difference(graph, power, user)


def _decays(base: object) -> bool:
    """Whether a base is between 0 and 1; for a symbolic one that becomes a guard of the program."""
    value = base.meta["val"] if isinstance(base, fx.Node) else base
    return isinstance(value, float | torch.SymFloat) and bool(value > 0) and bool(value < 1)


def _rewrite_difference(graph: fx.Graph, power: fx.Node, user: fx.Node) -> None:
    if user.target is aten.neg.default:
        for outer in list(user.users):
            if outer.target in (aten.add.Tensor, aten.add.Scalar) and _operands(outer, user) == 1:
                _replace(graph, outer, lambda: _one_minus(graph, power))
    elif _is_one_minus(user, power):
        _replace(graph, user, lambda: _one_minus(graph, power))
    elif _is_minus_one(user, power):
        _replace(graph, user, lambda: _negative(graph, power))


def _is_one_minus(node: fx.Node, power: fx.Node) -> bool:
    minuend, subtrahend = _difference(node)
    return subtrahend is power and _is(minuend, 1)


def _is_minus_one(node: fx.Node, power: fx.Node) -> bool:
    minuend, subtrahend = _difference(node)
    if minuend is power:
        return _is(subtrahend, 1)
    return node.target in (aten.add.Tensor, aten.add.Scalar) and _is(_operands(node, power), -1)


def _difference(node: object) -> tuple[Any, Any]:
    """Minuend and subtrahend of a subtraction without `alpha`; twice None for another node."""
    if not isinstance(node, fx.Node) or node.kwargs or len(node.args) != 2:
        return None, None
    if node.target in (aten.sub.Tensor, aten.sub.Scalar):
        return node.args[0], node.args[1]
    return (node.args[1], node.args[0]) if node.target in (aten.rsub.Tensor, aten.rsub.Scalar) else (None, None)


def _is(argument: object, number: int) -> bool:
    return isinstance(argument, int | float) and argument == number


def _operands(node: fx.Node, known: fx.Node) -> Any:
    """The other operand of a sum without `alpha`; None when there is no such."""
    if node.kwargs or len(node.args) != 2 or known not in node.args:
        return None
    return node.args[1] if node.args[0] is known else node.args[0]


def _one_minus(graph: fx.Graph, power: fx.Node) -> fx.Node:
    base, exponent = power.args
    return graph.call_function(_ONE_MINUS_POW, (exponent, _log2(graph, base)))


def _negative(graph: fx.Graph, power: fx.Node) -> fx.Node:
    positive = _one_minus(graph, power)
    positive.meta = dict(power.meta)
    return graph.call_function(aten.neg.default, (positive,))


def _log2(graph: fx.Graph, base: Any) -> Any:
    if not isinstance(base, fx.Node):
        return math.log2(base)
    # arithmetic on symbolic numbers is done by the host, in double precision
    node = graph.call_function(sym_log2, (base,))
    node.meta = {"val": sym_log2(base.meta["val"])}
    return node


def _rewrite_length(graph: fx.Graph, power: fx.Node) -> None:
    """Find `rho_inf - 2 * step * beta ** step / (1 - beta ** step)` around its first power."""
    beta, step = power.args
    if not isinstance(beta, int | float):
        return
    for product in _users(power, aten.mul.Tensor):
        if not _is_twice(_operands(product, power), step):
            continue
        for quotient in _users(product, aten.div.Tensor):
            if quotient.args[0] is product and _same_difference(quotient.args[1], power):
                for node in list(quotient.users):
                    if _difference(node) == (2 / (1 - beta) - 1, quotient):
                        replace_call(graph, node, _RECTIFIED_LENGTH, (step, beta))


def _users(node: fx.Node, target: OpOverload) -> list[fx.Node]:
    return [user for user in node.users if user.target is target and not user.kwargs]


def _is_twice(node: object, step: Any) -> bool:
    return isinstance(node, fx.Node) and node.target is aten.mul.Tensor and _operands(node, step) == 2


def _same_difference(node: object, power: fx.Node) -> bool:
    """Whether a node is one minus the same power, in the original form or already rewritten."""
    if not isinstance(node, fx.Node):
        return False
    beta, step = power.args
    if node.target is _ONE_MINUS_POW and isinstance(beta, int | float):
        return node.args == (step, math.log2(beta))
    minuend, other = _difference(node)
    same = isinstance(other, fx.Node) and other.target is power.target and other.args == power.args
    return same and _is(minuend, 1)


def copy_of(graph: fx.Graph) -> fx.Graph:
    """A graph of its own, for passes that suit one platform or mesh.

    The captured graph stays as it is: model FLOPs are counted in it, by formulas that know `mm` and none of our ops.
    """
    copy, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        copies[node] = copy.node_copy(node, copies.__getitem__)
    return copy


def arguments_of(node: fx.Node) -> tuple[Any, ...]:
    """Arguments of an op: their types are those of its schema."""
    return node.args


def needed_for(values: Iterable[object]) -> set[fx.Node]:
    """The nodes among some values, and all that they are computed of."""
    needed, waiting = set[fx.Node](), list(values)
    while waiting:
        node = waiting.pop()
        if isinstance(node, fx.Node) and node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    return needed


def drop_unused(graph: fx.Graph) -> None:
    """Remove what a pass has put something else in place of; placeholders stay."""
    graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))


def _replace(graph: fx.Graph, node: fx.Node, make: Callable[[], fx.Node]) -> None:
    """Put what `make` adds to the graph in place of a node, which stays for the clean-up."""
    with graph.inserting_before(node):
        new = make()
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)


def replace_call(graph: fx.Graph, node: fx.Node, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Put one call in place of a node, which stays for the clean-up."""
    _replace(graph, node, lambda: graph.call_function(target, arguments))
