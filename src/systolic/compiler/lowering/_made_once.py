"""Values that XLA's CPU backend keeps, where it would compute them anew in every loop that reads them.

It forms its loops by pulling into each one all the arithmetic that its operands come from. That is good for short chains,
and bad where a value is read by many, or where it pulls in an array that another loop writes over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from torch import fx

from ._checks import Checks, is_fine


def made_once(value: jax.Array, condition: jax.Array) -> jax.Array:
    """The value, in memory.

    Barriers are gone before XLA forms its loops, and what it keeps for certain is the operand of a conditional. Both
    branches of this one give the value; the barrier keeps XLA from seeing that in time.

    Args:
        value: an array, however it lies on the devices.
        condition: any boolean that every core has, and of which XLA knows nothing.
    """
    return lax.cond(condition, lambda same: same, lax.optimization_barrier, value)


class ReadWrites:
    """New values of the state that other ops of the step read, as an optimizer's moments are by its update.

    A step writes over its state unless a check fails. XLA would compute a moment for the update once more from the old
    one, and therefore copy the old one before it is written over: for AdamW two copies of the size of the model, and twice
    the time. Chosen and kept at once, the new moment takes the old one's place, and the update reads it there. It may read
    the old one where a check has failed: then what it computes is dropped as well.
    """

    def __init__(self, old: Mapping[fx.Node, jax.Array], outcome: jax.Array) -> None:
        self._old = old
        self._before = outcome
        self._fine: dict[int, jax.Array] = {}
        self._chosen: dict[fx.Node, int] = {}

    def of_result(self, node: fx.Node, value: Any, checks: Checks) -> Any:
        """The result of a node as other ops read it, with the checks that were made so far."""
        old, count = self._old.get(node), len(checks.made)
        if old is None or not count:
            return value
        if count not in self._fine:
            self._fine[count] = is_fine(checks.outcome(self._before))
        self._chosen[node] = count
        return made_once(jnp.where(self._fine[count], value, old), self._fine[count])

    def chosen(self, checks: Checks) -> set[fx.Node]:
        """Nodes whose value is the right one already, since no check of the whole step came after it."""
        return {node for node, count in self._chosen.items() if count == len(checks.made)}
