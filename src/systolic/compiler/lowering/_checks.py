"""Values that eager PyTorch refuses when an op meets them: noted inside the program, raised by the host.

Nothing can raise inside a program. Every check becomes one 32-bit word, zero where all is well and else an offending
value. What the host has to know of any number of steps is their outcome: [steps so far, the first step with an offending
value, which of the checks in its program found it, the word], with zero for the word as long as there was none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from torch import fx

from ...sharding import batch_parts
from ...utilities._torch_internals import OpOverload
from ._node_meta import LINE, RECOMPUTED

_LIMITS = np.iinfo(np.int32)


class Place(Protocol):
    """Place where an op is lowered: the members that checks need of a `LoweringContext`, which holds them."""

    @property
    def node(self) -> fx.Node | None:
        """The node that is being lowered."""
        ...

    @property
    def mesh(self) -> Mesh | None:
        """The cores that run the program; None for one core."""
        ...


@dataclass(frozen=True)
class Check:
    """Requirement of one op on one of its arguments.

    Attributes:
        op: the op's name.
        line: where in the user's code it was called, "file:line"; empty where no user's function was running.
        what: what the values are.
        low: the smallest value that is allowed.
        high: the smallest one above it that is not; the largest one that is allowed of real numbers.
        is_real: whether the values are real numbers.
        is_counted: whether fewer are allowed, as values decide.
    """

    op: str
    line: str
    what: str
    low: int
    high: int
    is_real: bool = False
    is_counted: bool = False

    def value(self, word: int) -> str:
        """The offending value that a word stands for."""
        bits = np.uint32(word)
        if self.is_real:
            return f"{bits.view(np.float32):g}"
        code = int(bits.view(np.int32))
        number = code - (code > 0)
        if number in (_LIMITS.min, _LIMITS.max - 1):
            return f"{number} or {'less' if number < 0 else 'more'}"
        return str(number)

    @property
    def allowed(self) -> str:
        """The values that the op takes."""
        if self.high == self.low and not self.is_real:
            return "none (the dimension has no elements)"
        last = self.high if self.is_real else self.high - 1
        most = ", or fewer: values decide how many elements there are" if self.is_counted else ""
        return f"{self.low}" if last == self.low else f"{self.low} to {last}{most}"


@dataclass(frozen=True)
class StepCheck:
    """Condition of the step's own code, which raises an error where it does not hold.

    Attributes:
        place: its number among the questions that the step asked when it was traced.
        line: where in the user's code it stands.
    """

    place: int
    line: str


class Checks:
    """The checks of one program, in the order of its ops.

    Attributes:
        made: what each check requires.
    """

    def __init__(self) -> None:
        self.made: list[Check | StepCheck] = []
        self._words: list[jax.Array] = []
        self._nodes: list[fx.Node | None] = []
        # the arrays are kept: another one must not get the id of one that was checked
        self._seen: dict[tuple[int, int, int, int | None], jax.Array] = {}

    def in_range(self, context: Place, values: jax.Array, low: int, high: int, ignored: int | None, what: str, op: str) -> None:
        """Check integers; the same ones for the same range, which a gradient does, only once."""
        key = (id(values), low, high, ignored)
        if values.size and key not in self._seen and not _is_repeated(context):
            self._seen[key] = values
            bad = _outside(values, low, high)
            if ignored is not None:
                bad &= values != ignored
            self._add(context, _offending_integer(values, bad), Check(op, _line(context), what, low, high))

    def counted(self, context: Place, values: jax.Array, count: jax.Array, low: int, bound: int, op: str) -> None:
        """Check places in a dimension of which so many elements count."""
        if values.size and not _is_repeated(context):
            bad = _outside(values, low, bound) | (values >= count) | (values < (-count if low < 0 else 0))
            check = Check(op, _line(context), "index", low, bound, is_counted=True)
            self._add(context, _offending_integer(values, bad), check)

    def in_unit_interval(self, context: Place, values: jax.Array, what: str, op: str) -> None:
        """Check real numbers."""
        if values.size and not _is_repeated(context):
            inside = (values >= 0) & (values <= 1)
            bits = jax.lax.bitcast_convert_type(values.astype(jnp.float32), jnp.uint32)
            self._add(context, jnp.where(inside, jnp.uint32(0), bits), Check(op, _line(context), what, 0, 1, is_real=True))

    def _add(self, context: Place, words: jax.Array, check: Check) -> None:
        cores = batch_parts(context.mesh) if context.mesh is not None else 1
        if words.ndim and words.shape[0] % cores == 0:
            # each core's own part; cores meet once for all checks, in `outcome`
            found = words.reshape(cores, -1).max(1)
        else:
            found = jnp.broadcast_to(words.max(), (cores,))
        self._note(found, check, context.node)

    def _note(self, words: jax.Array, check: Check | StepCheck, node: fx.Node | None) -> None:
        self._words.append(words)
        self.made.append(check)
        self._nodes.append(node)

    def of_step(self, holds: jax.Array, check: StepCheck, nodes: Sequence[fx.Node], mesh: Mesh) -> None:
        """Check a condition, behind all that the ops up to what it is of check: eager PyTorch would have met these first.

        Args:
            holds: the condition.
            check: what it is.
            nodes: the graph's, up to the last one whose value it is of.
            mesh: the cores that run the program.
        """
        before = set(nodes)
        place = max((place + 1 for place, one in enumerate(self._nodes) if one in before), default=0)
        word = jnp.where(holds, jnp.uint32(0), jnp.uint32(1))
        self._words.insert(place, jnp.broadcast_to(word, (batch_parts(mesh),)))
        self.made.insert(place, check)
        self._nodes.insert(place, nodes[-1])

    @property
    def words(self) -> Sequence[jax.Array]:
        """The word of each check on every core."""
        return self._words

    def add_of_part(self, word: jax.Array, check: Check | StepCheck, node: fx.Node) -> None:
        """A check that a part of the program has made."""
        self._note(word, check, node)

    def by_node(self) -> Iterator[tuple[Check | StepCheck, fx.Node]]:
        """Each check that an op made, and its node."""
        for check, node in zip(self.made, self._nodes, strict=True):
            assert node is not None, "a check of an op has its node"
            yield check, node

    def add_layers(self, words: jax.Array, check: Check | StepCheck) -> None:
        """A check that a loop made in each of its layers: the words have a first dimension for these."""
        self._note(words.max(0), check, None)

    def outcome(self, before: jax.Array) -> jax.Array:
        """The outcome after this step, from that of the steps before it; the same one where nothing is checked."""
        if not self._words:
            return before
        words = jnp.stack(self._words).max(1)
        check = jnp.argmax(words != 0).astype(jnp.uint32)
        steps = before[0] + 1
        now = jnp.stack([steps, steps, check, words[check]])
        return jnp.where(before[3] == 0, now, before.at[0].set(steps))


def no_outcome() -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """The outcome of no steps."""
    return np.zeros(4, np.uint32)


def is_fine(outcome: jax.Array) -> jax.Array:
    """Whether no step had an offending value."""
    return outcome[3] == 0


def _outside(values: jax.Array, low: int, high: int) -> jax.Array:
    fits = all(_LIMITS.min <= limit <= _LIMITS.max for limit in (low, high))
    values = values.astype(jnp.promote_types(values.dtype, jnp.int32 if fits else jnp.int64))
    return (values < low) | (values >= high)


def _offending_integer(values: jax.Array, bad: jax.Array) -> jax.Array:
    """Per element a word: zero where it is allowed, else a code that is never zero, of the element cut to 32 bits."""
    values = values.astype(jnp.promote_types(values.dtype, jnp.int32))
    cut = jnp.clip(values, int(_LIMITS.min), int(_LIMITS.max) - 1).astype(jnp.int32)
    code = jnp.where(cut < 0, cut, cut + 1)
    return jnp.where(bad, jax.lax.bitcast_convert_type(code, jnp.uint32), jnp.uint32(0))


def _line(context: Place) -> str:
    return context.node.meta.get(LINE, "") if context.node is not None else ""


def _is_repeated(context: Place) -> bool:
    """Whether the op computes what one before it has computed, and checked."""
    return context.node is not None and RECOMPUTED in context.node.meta


def name_of(context: Place) -> str:
    """The name of the op that is being lowered, without its library and overload."""
    target = context.node.target if context.node is not None else None
    return target.overloadpacket.__name__ if isinstance(target, OpOverload) else "an op outside of a graph"
