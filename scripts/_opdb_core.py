"""How each of PyTorch's core-aten overloads is covered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from _opdb_pool import Report
from torch._decomp import core_aten_decompositions
from torch._ops import OpOverload

from systolic.compiler.capture._op_policy import REFUSED
from systolic.compiler.capture._sized_ops import SIZED
from systolic.compiler.lowering import find_lowering

aten = torch.ops.aten

_STATIC = "a number when a step is captured, as shapes are fixed; leaves nothing in the graph"
_WITHOUT_LOWERING = {
    aten.sym_size.int: ("as a constant", _STATIC),
    aten.sym_stride.int: ("as a constant", _STATIC),
    aten.sym_numel.default: ("as a constant", _STATIC),
    aten.sym_storage_offset.default: ("as a constant", _STATIC),
    aten.sym_is_contiguous.default: ("as a constant", _STATIC),
    aten.atan2.out: ("by its functional form", "functionalization turns it into `aten.atan2.default`"),
}


@dataclass(frozen=True)
class CoreRow:
    """One overload: in which way it is covered, why not by a lowering, and in how many operators' graphs it was seen."""

    name: str
    way: str
    reason: str
    graphs: int


def core_overloads() -> list[OpOverload]:
    """Every aten overload that PyTorch tags as core."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        op = getattr(getattr(aten, packet, None), overload or "default", None) if namespace == "aten" else None
        if isinstance(op, OpOverload) and torch.Tag.core in op.tags:
            found.append(op)
    return sorted(found, key=str)


def core_rows(reports: Sequence[Report]) -> list[CoreRow]:
    """One row per core overload."""
    seen = Counter(op for report in reports for op in report["ops"])
    rules = core_aten_decompositions()
    return [CoreRow(str(op), *_way(op, rules), seen[str(op)]) for op in core_overloads()]


def _way(op: OpOverload, rules: dict[OpOverload, object]) -> tuple[str, str]:
    if op in SIZED:
        return "by ops of a size that is asked for", "values decide how large its result is (docs/steps.md, sizes of masks)"
    if op in REFUSED:
        return "not covered", f"refused: {REFUSED[op]}"
    if find_lowering(op) is not None:
        return "by a lowering", ""
    if op in _WITHOUT_LOWERING:
        return _WITHOUT_LOWERING[op]
    implicit = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), torch._C.DispatchKey.CompositeImplicitAutograd)
    if op in rules or implicit:
        return "by a decomposition", "PyTorch's own rule splits it into ops with a lowering"
    return "not covered", "no lowering"
