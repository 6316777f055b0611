"""Facts about a compiled program: operations, collectives, foreign calls."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from ._groups import Cores
from ._hlo_text import Array

# these read as much of their first operand as their first result holds
_PARTIAL: Final = frozenset({"copy-start", "slice-start", "slice", "dynamic-slice"})


@dataclass(frozen=True)
class Operation:
    """Something that a core executes.

    Attributes:
        name: its name in the program.
        opcode: HLO's opcode ("fusion", "custom-call", "copy", ...).
        cycles: the compiler's estimate for one execution, or None where it makes none.
        times: how often a step executes it.
        operands: what it reads.
        results: what it writes.
        op_name: the path of the JAX operation that it was made from.
        inner_opcodes: for a fusion, what it was made of.
        flops: of one execution's matrix products and convolutions.
    """

    name: str
    opcode: str
    cycles: int | None
    times: int
    operands: tuple[Array, ...]
    results: tuple[Array, ...]
    op_name: str
    inner_opcodes: frozenset[str]
    flops: int = 0

    @property
    def total_cycles(self) -> int:
        """Estimated cycles in a step; 0 where there is no estimate."""
        return (self.cycles or 0) * self.times

    @property
    def hbm_bytes(self) -> int:
        """Bytes that one execution reads from and writes to HBM."""
        if self.opcode in _PARTIAL:
            target = self.results[0]
            ends = (target, *self.operands[:1])
            return sum(target.bytes for end in ends if end.memory_space == 0)
        inside = {self.opcode, *self.inner_opcodes}
        if "scatter" in inside and self.cycles is None:
            # the array that is written into stays where it is: of it only what changes is read and written
            largest = max(a.bytes for a in self.results)
            return 2 * sum(a.bytes for a in self.operands if a.memory_space == 0 and a.bytes < largest)
        if "gather" in inside and self.cycles is None:
            produced = sum(a.bytes for a in self.results)
            return sum(min(a.bytes, produced) for a in (*self.operands, *self.results) if a.memory_space == 0)
        return sum(a.bytes for a in (*self.operands, *self.results) if a.memory_space == 0)


@dataclass(frozen=True)
class Collective:
    """A communication between cores.

    Attributes:
        kind: "all-reduce", "all-gather", "reduce-scatter", "all-to-all" or "collective-permute".
        times: how often a step executes it.
        bytes: the size on one core of what it works on: of the larger one of operands and results.
        groups: the cores of each group; empty where the program does not say them, and between slices.
        overlaps: whether the program goes on with other work meanwhile.
        slices: between how many slices each core exchanges values with its likes; 1: inside of a slice.
    """

    name: str
    kind: str
    times: int
    bytes: int
    groups: tuple[Cores, ...]
    op_name: str
    overlaps: bool
    slices: int = 1


@dataclass(frozen=True)
class CustomCall:
    """A call of something that is no HLO, such as a Pallas kernel ("tpu_custom_call").

    Attributes:
        target: what is called.
        kernel: the kernel's name, for Pallas kernels.
        flops: floating-point operations of one execution: as its author stated them, or by formula for JAX's attention
            splash kernels, or None.
        exponentials: and other transcendental functions of one execution, from the same source, or None.
        bytes: bytes accessed by one execution as its author stated them, or None.
        operation: the call as an operation, with operands and results.
    """

    target: str
    kernel: str
    flops: int | None
    exponentials: int | None
    bytes: int | None
    operation: Operation

    @property
    def flops_known_to_xla(self) -> int:
        """FLOPs in a step that XLA's own count has: those of kernels whose authors state a cost."""
        return 0 if self.bytes is None else (self.flops or 0) * self.operation.times


@dataclass(frozen=True)
class HloAnalysis:
    """A program, taken apart.

    Attributes:
        operations: in the order in which they run.
        collectives: also those that run inside of fusions.
        custom_calls: Pallas kernels and other foreign calls that do work.
        dtypes: how many instructions give arrays of each element type, those inside fusions included.
        unknown_loops: names of loops whose trip count is not known; their bodies are counted once.
    """

    operations: tuple[Operation, ...]
    collectives: tuple[Collective, ...]
    custom_calls: tuple[CustomCall, ...]
    dtypes: Counter[str]
    unknown_loops: tuple[str, ...]

    @property
    def estimated_cycles(self) -> int:
        """The sum of the compiler's estimates over a step."""
        return sum(o.total_cycles for o in self.operations)

    @property
    def unestimated(self) -> tuple[Operation, ...]:
        """Operations without an estimate that are neither collectives nor custom calls."""
        known = {c.name for c in self.collectives} | {c.operation.name for c in self.custom_calls}
        return tuple(o for o in self.operations if o.cycles is None and o.name not in known)


_LINE = re.compile(r"\[([^\[\]]+:\d+)\]")
# a function that the program calls for each of several layers names what is inside of one: "model.net.0/jit(layer)/.up/..."
_OF_LAYER = re.compile(r"/jit\(layer\)/\.([^/]*)")
_SCOPE = re.compile(r"(?:^|/)((?:backward/)?model[^/\[]*|backward|optimizer)(?:/|$)")


def user_line(operation: Operation) -> str:
    """The line of user code that an operation comes from, as "file:line"; of a fusion, the line of its last op."""
    found = _LINE.findall(operation.op_name)
    return found[-1] if found else ""


def module_of(operation: Operation) -> str:
    """The module that an operation belongs to: `model.net.0`, `backward/model.net.0`, or `optimizer`."""
    whole = _OF_LAYER.sub(r".\1", _LINE.sub("", operation.op_name).replace("//", "/"))
    found = _SCOPE.search(whole)
    return found[1] if found else ""
