"""How often the loops of a compiled program run, where the text tells it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ._hlo_text import Computation, Instruction, Module

# a scalar as far as it is known: a number, ("state", i) for the loop's i-th variable, or ("add" | "LT" | ..., a, b)
Scalar = Any

_PASSED_ON: Final = frozenset({"copy", "bitcast", "convert", "copy-done", "copy-start", "reshape", "broadcast"})


def trip_count(module: Module, computation: Computation, loop: Instruction) -> int | None:
    """How often a `while` runs its body: as the compiler noted it, or from a counter that is compared with a constant.

    Args:
        module: the program.
        computation: the computation that `loop` is in.
        loop: an instruction with opcode "while".
    """
    noted = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes)
    if noted:
        return int(noted.group(1))
    reader = _Reader(module)
    condition = reader.root(module.called(loop, "condition"))
    if not _is_pair(condition) or condition[0] not in ("LT", "LE", "GT", "GE", "NE"):
        return None
    direction, counter, limit = condition
    if isinstance(counter, int):
        direction, counter, limit = _MIRRORED[direction], limit, counter
    if not (isinstance(counter, tuple) and counter[0] == "state"):
        return None
    initial = reader.variable(computation, loop, counter[1])
    end = reader.variable(computation, loop, limit[1]) if isinstance(limit, tuple) and limit[0] == "state" else limit
    step = _step(reader.update(module.called(loop, "body"), counter[1]), counter)
    if not (isinstance(initial, int) and isinstance(end, int) and step):
        return None
    return _trips(direction, initial, end, step)


_MIRRORED: Final = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}


def _trips(direction: str, initial: int, end: int, step: int) -> int | None:
    distance = (end - initial) if step > 0 else (initial - end)
    if direction == "NE":
        return distance // abs(step) if distance >= 0 and distance % abs(step) == 0 else None
    if (direction in ("LT", "LE")) != (step > 0):
        return None
    return max(0, -(-(distance + (direction in ("LE", "GE"))) // abs(step)))


def _step(update: Scalar, counter: Scalar) -> int | None:
    if not _is_pair(update) or update[0] not in ("add", "subtract"):
        return None
    kind, one, other = update
    if one == counter and isinstance(other, int):
        return other if kind == "add" else -other
    return one if kind == "add" and other == counter and isinstance(one, int) else None


def _is_pair(value: Scalar) -> bool:
    return isinstance(value, tuple) and len(value) == 3


class _Reader:
    """Follows scalars through instructions."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def root(self, computation: Computation) -> Scalar:
        """The value that a loop's condition returns, in terms of the loop's variables."""
        return self._value(computation, computation.root.name, {})

    def update(self, body: Computation, index: int) -> Scalar:
        """Update of a variable by a loop's body."""
        root = body.root
        return self._value(body, root.operands[index], {}) if root.opcode == "tuple" else None

    def variable(self, computation: Computation, loop: Instruction, index: int) -> Scalar:
        """Value of a variable before the loop."""
        state = computation.instructions.get(loop.operands[0])
        return self._value(computation, state.operands[index], {}) if state and state.opcode == "tuple" else None

    def _value(self, computation: Computation, name: str, arguments: Mapping[int, Scalar], element: int = 0) -> Scalar:
        instruction = computation.instructions.get(name)
        if instruction is None:
            return None
        follow = lambda operand: self._value(computation, operand, arguments)  # noqa: E731
        match instruction.opcode:
            case "constant":
                return int(instruction.operands[0]) if re.fullmatch(r"-?\d+", instruction.operands[0]) else None
            case "parameter":
                return arguments.get(int(instruction.operands[0]))
            case "get-tuple-element":
                return self._element(computation, instruction, arguments)
            case "add" | "subtract":
                return instruction.opcode, follow(instruction.operands[0]), follow(instruction.operands[1])
            case "compare":
                direction = re.search(r"direction=(\w+)", instruction.attributes)
                assert direction, f"{instruction.name} compares without a direction"
                return direction.group(1), follow(instruction.operands[0]), follow(instruction.operands[1])
            case "fusion":
                inner = self._module.called(instruction, "calls")
                passed = {i: follow(operand) for i, operand in enumerate(instruction.operands)}
                root = inner.root
                return self._value(inner, root.operands[element] if root.opcode == "tuple" else root.name, passed)
            case opcode if opcode in _PASSED_ON:
                return follow(instruction.operands[0])
            case _:
                return None

    def _element(self, computation: Computation, instruction: Instruction, arguments: Mapping[int, Scalar]) -> Scalar:
        index = re.search(r"index=(\d+)", instruction.attributes)
        assert index, f"{instruction.name} names no element"
        source = computation.instructions[instruction.operands[0]]
        if source.opcode == "parameter":
            return "state", int(index.group(1))
        if source.opcode == "fusion":
            return self._value(computation, source.name, arguments, int(index.group(1)))
        return None
