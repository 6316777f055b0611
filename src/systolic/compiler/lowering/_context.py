"""Context of a lowering: facts that it may ask for about the program that it is part of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import torch
from jax.sharding import Mesh
from torch import fx

from ._bits import mask_key
from ._checks import Checks, name_of
from ._made_once import ReadWrites
from ._stash import Stash
from ._value_placement import Gathered, ValuePlacement


@dataclass
class LoweringContext:
    """One run of the graph interpreter.

    Attributes:
        key: the program's random key, a typed JAX key; every random op folds its own number into it.
        batch_shards: over how many cores the batch dimension is split; 1 when it is not.
        platform: "tpu", "gpu" or "cpu": the machine that the program is for.
        mesh: the cores that run it; None for one core.
        names_lines: whether names of ops in the compiled program hold lines of the user's code.
        placement: how values lie on the mesh; None where XLA decides for all.
        writes: new values of the state that are kept as soon as they are there; None where XLA decides.
        output: the fake value (or tuple of them) that PyTorch announced for the node being lowered.
        node: that node.
        stash: pullbacks of already lowered forward calls, so that their backward need not run the forward again.
        checks: what the lowered ops require of their arguments' values.
        gathered: split state as the ops compute with it, so far.
        draws: inside a loop over layers: the numbers of random ops, which differ from layer to layer.
        names: the same for scopes: what a module's path begins with, and the name of all layers.
        functions: bodies of parts that are alike, as the program calls them.
        inside: in such a body: what the scopes of its nodes begin with, which the call says.
    """

    key: jax.Array | None = None
    batch_shards: int = 1
    platform: str = "cpu"
    mesh: Mesh | None = None
    names_lines: bool = False
    placement: ValuePlacement | None = None
    writes: ReadWrites | None = None
    output: Any = None
    node: fx.Node | None = None
    stash: Stash = field(default_factory=Stash)
    checks: Checks = field(default_factory=Checks)
    gathered: Gathered = field(default_factory=dict)
    draws: Mapping[fx.Node, jax.Array] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    functions: dict[Hashable, Callable[..., Any]] = field(default_factory=dict)
    inside: str = ""
    _drawing: tuple[fx.Node | None, int] = (None, 0)

    def next_key(self) -> jax.Array:
        """A key that no other random op of this program gets, unless it is the same op computed once more."""
        assert self.key is not None, "a random op was lowered in a program without a key"
        return jax.random.fold_in(self.key, self._next_number())

    def next_mask_key(self) -> jax.Array:
        """The same for masks, which `keep_mask` makes without a generator."""
        assert self.key is not None, "a random op was lowered in a program without a key"
        return mask_key(self.key, self._next_number())

    def _next_number(self) -> int | jax.Array:
        # counted within the op and not over the program: else an op that is computed again would draw another mask
        count = self._drawing[1] + 1 if self._drawing[0] is self.node else 0
        self._drawing = (self.node, count)
        if self.node is None:
            return count
        draw = self.draws.get(self.node)
        return (self.node.meta.get("draw", 0) if draw is None else draw) * _KEYS_PER_OP + count

    def named(self, scope: str) -> str:
        """A scope as it is written into the program."""
        if self.inside:
            return scope.removeprefix(self.inside)
        for path, name in self.names.items():
            before, found, after = scope.partition(path)
            if found and (not after or after[0] == "."):
                return before + name + after
        return scope

    def require_in_range(
        self,
        values: jax.Array,
        size: int,
        *,
        low: int = 0,
        ignored: int | None = None,
        what: str = "index",
        op: str = "",
    ) -> None:
        """Have the host raise when an integer is below `low` or not below `size`.

        Called where an op's lowering begins, not inside a function that JAX transforms: the check outlives the op.

        Args:
            values: what eager PyTorch looks at.
            size: the first number that is too large.
            low: the smallest number that is allowed; `-size` where indices may count from the end.
            ignored: a number that is allowed nevertheless.
            what: what the numbers are, for the error.
            op: the function that refuses them; the op being lowered if it is not given.
        """
        self.checks.in_range(self, values, low, size, ignored, what, op or name_of(self))

    def require_counted(self, values: jax.Array, count: jax.Array, bound: int, *, low: int = 0, op: str = "") -> None:
        """Have the host raise when a place is not among those that count.

        Args:
            values: the places.
            count: how many count.
            bound: how many there are.
            low: the smallest number that may be allowed; `-bound` where places may count from the end.
            op: the function that refuses them.
        """
        self.checks.counted(self, values, count, low, bound, op or name_of(self))

    def require_in_unit_interval(self, values: jax.Array, what: str) -> None:
        """Have the host raise when a real number is not between 0 and 1."""
        self.checks.in_unit_interval(self, values, what, name_of(self))

    def source(self, index: int) -> fx.Node | None:
        """The node that an argument of the op comes from; None outside of a graph and for arguments that are values."""
        source = self.node.args[index] if self.node is not None else None
        return source if isinstance(source, fx.Node) else None

    def operand(self, index: int) -> torch.Tensor:
        """The fake tensor that PyTorch traced an argument of the op with; it has strides, which arrays lack."""
        assert self.node is not None, "a lowering asked for an operand outside of a graph"
        source = self.node.args[index]
        assert isinstance(source, fx.Node)
        return source.meta["val"]


_KEYS_PER_OP = 64
"""No op draws more keys than this; the numbers of two ops' keys never meet."""

_STACK: list[LoweringContext] = []


@contextlib.contextmanager
def lowering_context(context: LoweringContext) -> Iterator[LoweringContext]:
    """Make `context` the one that `current()` returns."""
    _STACK.append(context)
    try:
        yield context
    finally:
        _STACK.pop()


def current() -> LoweringContext:
    """The context of the program being lowered."""
    assert _STACK, "a lowering asked for its context outside of a program"
    return _STACK[-1]
