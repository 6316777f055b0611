"""Analysis of an optimized HLO program: operations with the compiler's own cycle estimates, collectives, kernels, dtypes.

Rules of counting, the same for every program:

- An operation counts once per run: a loop's body by its trip count, of a conditional's branches the one with the most
  estimated cycles. A loop whose trip count cannot be read from the text counts once and is named in `unknown_loops`.
- What is inside a fusion is part of it; the estimate is the fusion's own.
- A collective that runs beside several fusions stands in each of them, with the number of its chain: it counts once.
- Bytes of an operation are its operands' and results' sizes in HBM without padding; what lies in other memories is free.
  A gather without an estimate reads as much as it gives, a scatter reads and writes as much as it is given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ._hlo_analysis import Collective, CustomCall, HloAnalysis, Operation
from ._hlo_calls import custom_call, is_free_call
from ._hlo_flops import product_flops
from ._hlo_groups import groups_of
from ._hlo_loops import trip_count
from ._hlo_network import Exchange, exchange_of
from ._hlo_text import Computation, Instruction, Module, parse


def analyse(text: str) -> HloAnalysis:
    """Take a compiled program apart.

    Args:
        text: `jax.stages.Compiled.as_text()`, or the text that libtpu dumps.

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
        self._chains: set[tuple[str, str, str, str]] = set()

    def run(self, computation: Computation, times: int) -> None:
        """Count what a computation does when it is executed a number of times."""
        for instruction in computation.instructions.values():
            if instruction.opcode in _CALLERS:
                self._enter(instruction, computation, times)
            elif (exchange := exchange_of(instruction)) is not None:
                self._exchange(exchange, instruction, computation, times)
            elif instruction.opcode not in _FREE and not is_free_call(instruction):
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
        """Computation that an async-start starts; of a call of another unit (tpu7x's SparseCore), what that unit computes."""
        started = self._module.called(caller, "calls")
        elsewhere = "called_computations=" in started.root.attributes
        return self._module.called(started.root, "called_computations") if elsewhere else started

    def _join(self, other: _Walk) -> None:
        self.operations += other.operations
        self.collectives += other.collectives
        self.custom_calls += other.custom_calls
        self.unknown += other.unknown

    def _exchange(self, exchange: Exchange, instruction: Instruction, computation: Computation, times: int) -> None:
        """Count what is sent to other slices; receiving, and waiting for both, name the same exchange."""
        if instruction.opcode == "send":
            size = max(a.bytes for a in computation.operands(instruction))
            self.collectives.append(
                Collective(
                    instruction.name,
                    exchange.kind,
                    times,
                    size * exchange.parts,
                    (),
                    _op_name(instruction),
                    True,
                    exchange.slices,
                )
            )

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
            if found is not None and not source.opcode.endswith("-done") and self._is_new(source, computation):
                # libtpu's form of one: a fusion of an all-reduce and of the slices that are left of it
                found = "reduce-scatter" if inner.name.startswith("all-reduce-scatter") else found
                self.collectives.append(self._collective(source, inner, found, times, overlaps=True))
        if instruction.opcode == "custom-call":
            self.custom_calls.append(custom_call(instruction, operation))

    def _is_new(self, collective: Instruction, computation: Computation) -> bool:
        """Whether a fusion's collective is not one that an earlier fusion began and that goes on."""
        chain = _CHAIN.search(collective.attributes)
        if chain is None:
            return True
        channel = _CHANNEL.search(collective.attributes)
        key = computation.name, collective.opcode, chain.group(1), channel.group(1) if channel else ""
        is_new = key not in self._chains
        self._chains.add(key)
        return is_new

    def _inside(self, instruction: Instruction) -> Iterator[tuple[Computation, Instruction]]:
        """Parts of a fusion, and the parts of the fusions in it."""
        if instruction.opcode == "fusion":
            inner = self._module.called(instruction, "calls")
            for part in inner.instructions.values():
                yield inner, part
                yield from self._inside(part)

    def _operation(self, instruction: Instruction, computation: Computation, times: int, opcodes: frozenset[str]) -> Operation:
        return Operation(
            instruction.name,
            instruction.opcode,
            _cycles(instruction.attributes),
            times,
            computation.operands(instruction),
            instruction.results,
            _op_name(instruction),
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
        groups = groups_of(instruction.attributes)
        return Collective(
            instruction.name,
            kind,
            times,
            max(sum(a.bytes for a in operands), sum(a.bytes for a in results)),
            groups,
            _op_name(instruction),
            overlaps,
        )


_CHAIN: Final = re.compile(r'chain_id="(\d+)"')
_CHANNEL: Final = re.compile(r"channel_id=(\d+)")
_CYCLES: Final = re.compile(r'"estimated_cycles":"(\d+)"')
_OP_NAME: Final = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')


_NO_ESTIMATE: Final = 2**63 - 1
"""What the compiler writes for work of tpu7x's SparseCore, with `COST_MODEL_TYPE_INVALID`."""


def _cycles(attributes: str) -> int | None:
    found = _CYCLES.search(attributes)
    cycles = int(found.group(1)) if found else _NO_ESTIMATE
    return None if cycles == _NO_ESTIMATE else cycles


def _op_name(instruction: Instruction) -> str:
    found = _OP_NAME.search(instruction.attributes)
    return found.group(1) if found else ""


def _kind(opcode: str) -> str | None:
    base = opcode.removesuffix("-start").removesuffix("-done")
    return base if base in KINDS else None


def _branches(conditional: Instruction) -> list[str]:
    listed = re.search(r"branch_computations=\{([^}]*)\}", conditional.attributes)
    text = listed.group(1) if listed else conditional.attributes
    pattern = r"%?([\w.\-]+)" if listed else r"(?:true|false)_computation=%?([\w.\-]+)"
    return re.findall(pattern, text)
