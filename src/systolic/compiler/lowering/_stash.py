"""Pullbacks that forward calls of JAX functions leave for their gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from ._layer_values import alone

Pull = Callable[[Any], Any]
"""From cotangents of a call's results to those of its inputs; a pytree of what it keeps."""

Call = tuple[int, int]
"""The number of a call, and that of the function that it calls."""


@dataclass(frozen=True)
class Left:
    """Leavings of one call.

    Attributes:
        arity: how many inputs the call has.
        leaves: the arrays that its pullback keeps; some may be rows of those of several layers.
        structure: the pullback around them.
    """

    arity: int
    leaves: tuple[Any, ...]
    structure: jax.tree_util.PyTreeDef  # pyright: ignore[reportInvalidTypeForm]

    @property
    def pull(self) -> Pull:
        """The pullback."""
        return jax.tree.unflatten(self.structure, map(alone, self.leaves))


class Stash:
    """Pullbacks of calls that were lowered, so that their gradients need not run the forward again."""

    def __init__(self) -> None:
        self._left: dict[Call, Left] = {}

    def put(self, call: Call, arity: int, pull: Pull) -> None:
        """Keep a pullback."""
        leaves, structure = jax.tree.flatten(pull)
        self.keep(call, Left(arity, tuple(leaves), structure))

    def keep(self, call: Call, left: Left) -> None:
        """Keep what a call left elsewhere."""
        self._left[call] = left

    def get(self, call: Call) -> Left | None:
        """The leavings of a call; None where there are none."""
        return self._left.get(call)
