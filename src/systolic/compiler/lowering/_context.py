"""What a lowering may ask about the program that it is part of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax


@dataclass
class LoweringContext:
    """One run of the graph interpreter.

    Attributes:
        key: the program's random key, a typed JAX key; every random op folds its own number into it.
        batch_shards: over how many cores the batch dimension is split; 1 when it is not.
        platform: "tpu", "gpu" or "cpu": the machine that the program is for.
        output: the fake value (or tuple of them) that PyTorch announced for the node being lowered.
        stash: pullbacks of already lowered forward calls, so that their backward need not run the forward again.
    """

    key: jax.Array | None = None
    batch_shards: int = 1
    platform: str = "cpu"
    output: Any = None
    stash: dict[int, Any] = field(default_factory=dict)
    random_ops: int = 0

    def next_key(self) -> jax.Array:
        """A key that no other random op of this program gets."""
        assert self.key is not None, "a random op was lowered in a program without a key"
        self.random_ops += 1
        return jax.random.fold_in(self.key, self.random_ops)


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
