"""What an optimized HLO program does: operations with the compiler's own cycle estimates, collectives, kernels, dtypes.

Rules of counting, the same for every program:

- An operation counts once per run: a loop's body by its trip count, of a conditional's branches the one with the most
  estimated cycles. A loop whose trip count cannot be read from the text counts once and is named in `unknown_loops`.
- What is inside a fusion is part of it; the estimate is the fusion's own.
- Bytes of an operation are its operands' and results' sizes in HBM without padding; what lies in other memories is free.
  A gather without an estimate reads as much as it gives, a scatter reads and writes as much as it is given.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from ._hlo_flops import product_flops
from ._hlo_loops import trip_count
from ._hlo_text import Array, Computation, Instruction, Module, Source, parse


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
        stack: source lines, innermost first.
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
    stack: tuple[Source, ...]
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
        group_size: how many cores take part in each group; None where the text does not say it.
        groups: the replica groups as written in the program.
        overlaps: whether the program goes on with other work meanwhile.
    """

    name: str
    kind: str
    times: int
    bytes: int
    group_size: int | None
    groups: str
    op_name: str
    overlaps: bool


@dataclass(frozen=True)
class CustomCall:
    """A call of something that is no HLO, such as a Pallas kernel ("tpu_custom_call").

    Attributes:
        target: what is called.
        kernel: the kernel's name, for Pallas kernels.
        flops: floating-point operations of one execution: as its author stated them, or by formula for JAX's attention
            kernels (see `_attention_flops`), or None.
        bytes: bytes accessed by one execution as its author stated them, or None.
        operation: the call as an operation, with operands and results.
    """

    target: str
    kernel: str
    flops: int | None
    bytes: int | None
    operation: Operation


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


def analyse(text: str) -> HloAnalysis:
    """Take a compiled program apart.

    Args:
        text: `jax.stages.Compiled.as_text()`.

    Raises:
        ValueError: when `text` is no HLO module.

    Example:
        >>> import jax
        >>> text = jax.jit(lambda x: x @ x).lower(jax.ShapeDtypeStruct((8, 8), "float32")).compile().as_text()
        >>> analyse(text).dtypes["f32"] > 0
        True
    """
    module = parse(text)
    walk = _Walk(module)
    walk.run(module.entry, 1)
    dtypes = Counter(a.dtype for c in module.computations.values() for i in c.instructions.values() for a in i.results)
    return HloAnalysis(
        tuple(walk.operations), tuple(walk.collectives), tuple(walk.custom_calls), dtypes, tuple(dict.fromkeys(walk.unknown))
    )


KINDS: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
                "collective-broadcast")  # fmt: skip
# these name values, and do nothing
_FREE: Final = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "partition-id", "replica-id", "after-all",
     "opt-barrier", "add-dependency", "copy-done", "slice-done", "async-done", "async-update"}
)  # fmt: skip
# these read as much of their first operand as their first result holds
_PARTIAL: Final = frozenset({"copy-start", "slice-start", "slice", "dynamic-slice"})
# these stand for a compiler's bookkeeping
_FREE_CALLS: Final = frozenset({"AllocateBuffer", "ConcatBitcast", "X64Combine", "X64SplitLow", "X64SplitHigh", "Sharding"})
_CALLERS: Final = frozenset({"while", "conditional", "call", "async-start"})


class _Walk:
    """One pass over everything that a program executes."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._beside = False  # whether what is walked runs beside other work
        self.operations: list[Operation] = []
        self.collectives: list[Collective] = []
        self.custom_calls: list[CustomCall] = []
        self.unknown: list[str] = []

    def run(self, computation: Computation, times: int) -> None:
        """Count what a computation does when it is executed a number of times."""
        for instruction in computation.instructions.values():
            if instruction.opcode in _CALLERS:
                self._enter(instruction, computation, times)
            elif instruction.opcode not in _FREE and not _is_free_call(instruction):
                self._count(instruction, computation, times)

    def _enter(self, caller: Instruction, computation: Computation, times: int) -> None:
        if caller.opcode == "while":
            trips = trip_count(self._module, computation, caller)
            if trips is None:
                self.unknown.append(caller.name)
            self.run(self._module.called(caller, "body"), times * (1 if trips is None else trips))
        elif caller.opcode == "conditional":
            branches = [_Walk(self._module) for _ in _branches(caller)]
            for branch, name in zip(branches, _branches(caller), strict=True):
                branch.run(self._module.computations[name], times)
            self._join(max(branches, key=lambda b: sum(o.total_cycles for o in b.operations)))
        elif caller.opcode == "call":
            self.run(self._module.called(caller, "to_apply"), times)
        else:
            before, self._beside = self._beside, True
            self.run(self._started(caller), times)
            self._beside = before

    def _started(self, caller: Instruction) -> Computation:
        """What an async-start starts; of a call of another unit (tpu7x's SparseCore), what that unit computes."""
        started = self._module.called(caller, "calls")
        elsewhere = "called_computations=" in started.root.attributes
        return self._module.called(started.root, "called_computations") if elsewhere else started

    def _join(self, other: _Walk) -> None:
        self.operations += other.operations
        self.collectives += other.collectives
        self.custom_calls += other.custom_calls
        self.unknown += other.unknown

    def _count(self, instruction: Instruction, computation: Computation, times: int) -> None:
        kind = _kind(instruction.opcode)
        if kind is not None:
            if not instruction.opcode.endswith("-done"):
                self.collectives.append(self._collective(instruction, computation, kind, times))
            return
        inside = tuple(self._inside(instruction))
        opcodes = frozenset(i.opcode for _, i in inside)
        flops = sum(product_flops(part, inner) for inner, part in ((computation, instruction), *inside))
        operation = replace(self._operation(instruction, computation, times, opcodes), flops=flops)
        self.operations.append(operation)
        for inner, source in inside:
            found = _kind(source.opcode)
            if found is not None and not source.opcode.endswith("-done"):
                self.collectives.append(self._collective(source, inner, found, times, overlaps=True))
        if instruction.opcode == "custom-call":
            self.custom_calls.append(_custom_call(instruction, operation))

    def _inside(self, instruction: Instruction) -> Iterator[tuple[Computation, Instruction]]:
        """What a fusion is made of, and what the fusions in it are made of."""
        if instruction.opcode == "fusion":
            inner = self._module.called(instruction, "calls")
            for part in inner.instructions.values():
                yield inner, part
                yield from self._inside(part)

    def _operation(self, instruction: Instruction, computation: Computation, times: int, opcodes: frozenset[str]) -> Operation:
        op_name, stack = self._origin(instruction)
        return Operation(
            instruction.name,
            instruction.opcode,
            _cycles(instruction.attributes),
            times,
            computation.operands(instruction),
            instruction.results,
            op_name,
            stack,
            opcodes,
        )

    def _collective(
        self, instruction: Instruction, computation: Computation, kind: str, times: int, *, overlaps: bool = False
    ) -> Collective:
        operands, results = computation.operands(instruction), instruction.results
        overlaps = overlaps or self._beside
        if instruction.opcode.endswith("-start"):
            # a start returns its operands along with its results; every other array would count twice
            results = results[len(operands) :]
            overlaps = True
        size, groups = _groups(instruction.attributes)
        return Collective(
            instruction.name,
            kind,
            times,
            max(sum(a.bytes for a in operands), sum(a.bytes for a in results)),
            size,
            groups,
            self._origin(instruction)[0],
            overlaps,
        )

    def _origin(self, instruction: Instruction) -> tuple[str, tuple[Source, ...]]:
        name = _OP_NAME.search(instruction.attributes)
        frame = _FRAME.search(instruction.attributes)
        number, stack = int(frame.group(1)) if frame else 0, []
        while number in self._module.frames:
            source, number = self._module.frames[number]
            stack.append(source)
        return name.group(1) if name else "", tuple(stack)


_CYCLES: Final = re.compile(r'"estimated_cycles":"(\d+)"')
_OP_NAME: Final = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FRAME: Final = re.compile(r"stack_frame_id=(\d+)")
_COST: Final = re.compile(r'"cost_estimate":\{([^{}]*)\}')


_NO_ESTIMATE: Final = 2**63 - 1
"""What the compiler writes for work of tpu7x's SparseCore, with `COST_MODEL_TYPE_INVALID`."""


def _cycles(attributes: str) -> int | None:
    found = _CYCLES.search(attributes)
    cycles = int(found.group(1)) if found else _NO_ESTIMATE
    return None if cycles == _NO_ESTIMATE else cycles


def _kind(opcode: str) -> str | None:
    base = opcode.removesuffix("-start").removesuffix("-done")
    return base if base in KINDS else None


def _branches(conditional: Instruction) -> list[str]:
    listed = re.search(r"branch_computations=\{([^}]*)\}", conditional.attributes)
    text = listed.group(1) if listed else conditional.attributes
    pattern = r"%?([\w.\-]+)" if listed else r"(?:true|false)_computation=%?([\w.\-]+)"
    return re.findall(pattern, text)


def _is_free_call(instruction: Instruction) -> bool:
    return instruction.opcode == "custom-call" and _target(instruction) in _FREE_CALLS


def _target(call: Instruction) -> str:
    found = re.search(r'custom_call_target="([^"]*)"', call.attributes)
    return found.group(1) if found else ""


def _custom_call(call: Instruction, operation: Operation) -> CustomCall:
    stated = _COST.search(call.attributes)
    figures = dict(re.findall(r'"(\w+)":"?(-?\d+)', stated.group(1))) if stated else {}
    flops, size = (int(figures[name]) if name in figures else None for name in ("flops", "bytes_accessed"))
    # XLA numbers the instructions that a kernel's name is given to
    kernel = re.sub(r"(\.\d+|\.clone|\.remat\d*)+$", "", call.name)
    return CustomCall(_target(call), kernel, _attention_flops(kernel, operation) if flops is None else flops, size, operation)


# products of queries (or their gradients) with keys or values that each of JAX's splash attention kernels computes
_ATTENTION_PRODUCTS: Final = {"splash_mha_fwd": 2, "splash_mha_dq": 3, "splash_mha_dkv": 5}


def _attention_flops(kernel: str, operation: Operation) -> int | None:
    """FLOPs of a kernel that states none: 2 x batch x heads x length x other length x features for each product.

    Tiles that a causal mask lets the kernel skip are counted as if it computed them.
    """
    products = next((n for prefix, n in _ATTENTION_PRODUCTS.items() if kernel.startswith(prefix)), None)
    operands = [a.shape for a in operation.operands if len(a.shape) >= 3 and a.dtype in ("bf16", "f32")]
    if products is None or len(operands) < 2:
        return None
    query, key = operands[:2]
    return products * 2 * math.prod(query) * key[-2]


def _groups(attributes: str) -> tuple[int | None, str]:
    """Cores per group, from any of the three ways in which XLA writes groups."""
    found = re.search(r"(?:replica_groups|source_target_pairs)=", attributes)
    if not found:
        return None, ""
    text = attributes[found.end() :]
    mesh = re.match(r"mesh\[([^\]]*)\] \{([^}]*)\}", text)
    if mesh:
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", mesh.group(1)))
        return math.prod(int(sizes[a]) for a in re.findall(r"'([^']+)'", mesh.group(2)) if a in sizes), mesh.group()
    counted = re.match(r"\[(\d+),(\d+)\]<=\[[\d,]*\](?:T\([\d,]*\))?", text)
    if counted:
        return int(counted.group(2)), counted.group()
    listed = re.match(r"\{(?:\{[\d,]*\},?)*\}", text)
    if not listed:
        return None, ""
    first = re.search(r"\{(\d+(?:,\d+)*)\}", listed.group())
    return len(first.group(1).split(",")) if first else None, listed.group()
