"""Read the text of an optimized HLO module into instructions; what they mean is the next file's business."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Array:
    """Shape of one array of a program.

    Attributes:
        dtype: XLA's name of the element type: "bf16", "f32", "s32", "pred", ...
        shape: its dimensions.
        memory_space: 0 is the device's main memory (HBM); on TPU 1 is the vector memory (VMEM) and 2 holds semaphores.
    """

    dtype: str
    shape: tuple[int, ...]
    memory_space: int = 0

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its size without the padding of tiles; a token or a type of unknown width has none."""
        return math.ceil(self.elements * bits_of(self.dtype) / 8)


@dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Attributes:
        results: the arrays that it returns; a tuple counts as its arrays.
        operands: names of the instructions that it takes, in order; for a constant and a parameter their text.
        attributes: everything after the operands.
        is_root: whether its value is that of the computation.
    """

    name: str
    opcode: str
    results: tuple[Array, ...]
    operands: tuple[str, ...]
    attributes: str
    is_root: bool


@dataclass
class Computation:
    """Instructions by name, in the order in which they run."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)

    @property
    def root(self) -> Instruction:
        """The instruction whose value the computation returns."""
        return next(i for i in reversed(self.instructions.values()) if i.is_root)

    def operands(self, instruction: Instruction) -> tuple[Array, ...]:
        """The arrays that an instruction takes."""
        return tuple(a for name in instruction.operands if name in self.instructions for a in self.instructions[name].results)


@dataclass
class Module:
    """A whole program.

    Attributes:
        entry: the computation that runs.
        computations: all of them, by name.
    """

    entry: Computation
    computations: dict[str, Computation]

    def called(self, caller: Instruction, attribute: str) -> Computation:
        """The computation that an instruction names as `attribute` ("body", "calls", "to_apply", ...)."""
        found = re.search(rf"\b{attribute}=\{{?%?([\w.\-]+)", caller.attributes)
        assert found, f"{caller.name} names no computation as {attribute}"
        return self.computations[found.group(1)]


_BITS: Final = {"pred": 8, "token": 0, "opaque": 0}


def bits_of(dtype: str) -> int:
    """Width of an element: bf16 has 16, f8e4m3fn has 8, s4 has 4, c64 has 64."""
    digits = re.search(r"\d+", dtype)
    return _BITS[dtype] if dtype in _BITS else int(digits.group()) if digits else 0


def parse(text: str) -> Module:
    """Read `jax.stages.Compiled.as_text()`.

    Args:
        text: an optimized HLO module, one instruction a line.

    Raises:
        ValueError: when the text holds no entry computation.
    """
    computations: dict[str, Computation] = {}
    entry: Computation | None = None
    current: Computation | None = None
    for line in _logical_lines(text):
        if current is None:
            found = _HEADER.match(line)
            if found:
                current = computations[found["name"]] = Computation(found["name"])
                entry = current if found["entry"] else entry
        elif _END.match(line):
            current = None
        elif line.startswith("  "):
            instruction = _instruction(line)
            current.instructions[instruction.name] = instruction
    if entry is None:
        raise ValueError("Expected the text of an HLO module with an ENTRY computation, as compiled.as_text() gives it.")
    return Module(entry, computations)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines, with an instruction whose attributes hold line breaks (metadata of Pallas kernels) as one."""
    held = ""
    for line in text.splitlines():
        if line.startswith("  ") or not line or _END.match(line) or _HEADER.match(line):
            if held:
                yield held
            held = line if line.startswith("  ") else ""
            if not held:
                yield line
        elif held:
            held += "\n" + line
    if held:
        yield held


_HEADER: Final = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{$")
# a computation of another unit of the core says so: `}, execution_thread="sparsecore"`
_END: Final = re.compile(r"\}(?:, execution_thread=.*)?$")
_ASSIGNMENT: Final = re.compile(r"  (?P<root>ROOT )?%?(?P<name>[\w.\-]+) = ")
_COMMENT: Final = re.compile(r"/\*.*?\*/")
_ARRAY: Final = re.compile(r"\b(?P<dtype>[a-z]\w*)\[(?P<shape>[\d,<=]*)\](?P<layout>\{[^{}]*\})?")
_SPACE: Final = re.compile(r"S\((\d+)\)")
_NAME: Final = re.compile(r"%([\w.\-]+)")


def _instruction(line: str) -> Instruction:
    found = _ASSIGNMENT.match(line)
    assert found, f"not an HLO instruction: {line[:120]}"
    start = found.end()
    end = _closing(line, start) + 1 if line[start] == "(" else line.index(" ", start)
    opened = line.index("(", end)
    closed = _closing(line, opened)
    opcode, inside = line[end:opened].strip(), line[opened + 1 : closed]
    operands = (inside,) if opcode in ("constant", "parameter") else tuple(_NAME.findall(_COMMENT.sub("", inside)))
    return Instruction(
        found["name"], opcode, tuple(arrays(line[start:end])), operands, line[closed + 1 :], found["root"] is not None
    )


_PARENTHESES: Final = re.compile(r"[()]")


def _closing(text: str, opened: int) -> int:
    """Index at which the parenthesis that opens at `opened` is closed."""
    depth = 0
    for found in _PARENTHESES.finditer(text, opened):
        depth += 1 if found.group() == "(" else -1
        if depth == 0:
            return found.start()
    # a constant's text may hold anything: it then ends with the line
    return len(text)


def arrays(text: str) -> Iterator[Array]:
    """The arrays of a type, in order."""
    for found in _ARRAY.finditer(_COMMENT.sub("", text)):
        space = _SPACE.search(found["layout"] or "")
        shape = tuple(int(n.removeprefix("<=")) for n in found["shape"].split(",") if n)
        yield Array(found["dtype"], shape, int(space.group(1)) if space else 0)
