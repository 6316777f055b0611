"""Exchanges of several slices over the data centre's network: libtpu hands them to the host (Megascale XLA)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ._hlo_text import Instruction

_OPCODES = frozenset({"send", "recv", "send-done", "recv-done"})
_TYPE = re.compile(r'_xla_megascale_transfer_type="(\w+)"')
_SLICES = re.compile(r'_xla_megascale_target="\{([\d,:]*)\}x')


@dataclass(frozen=True)
class Exchange:
    """Exchange between cores of several slices.

    Attributes:
        kind: as of other collectives: "all-reduce".
        slices: how many take part.
        parts: how many times what one core sends makes the whole: the number of slices where it is gathered.
    """

    kind: str
    slices: int
    parts: int


def exchange_of(instruction: Instruction) -> Exchange | None:
    """Exchange with other slices that a `send` or `recv` is; None for every other instruction.

    Args:
        instruction: of an optimized program.
    """
    if instruction.opcode not in _OPCODES or "xla_megascale_runtime" not in instruction.attributes:
        return None
    kind, target = _TYPE.search(instruction.attributes), _SLICES.search(instruction.attributes)
    name = kind.group(1).lower().replace("_", "-") if kind else "all-reduce"
    slices = sum(_count(part) for part in target.group(1).split(",")) if target else 1
    return Exchange(name, slices, slices if name == "all-gather" else 1)


def _count(part: str) -> int:
    first, colon, last = part.partition(":")
    return int(last) - int(first) + 1 if colon else 1
