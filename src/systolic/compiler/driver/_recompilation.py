"""Recompilation: which argument has another shape than the programs that are there, and when that has to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...utilities._entries import Entry, see
from .._errors import RecompileLimitError

Kind = tuple[Sequence[int], object]
"""The shape and the dtype of one tensor."""

Signature = tuple[object, tuple[Kind, ...]]
"""What is equal for calls that one program serves: the structure of the arguments, and the kinds of their tensors."""

NameOf = Callable[[Any, int], str]
"""From the structure of a call's arguments and the number of a tensor in them to what users call it."""


def argument(structure: object, index: int) -> str:
    """The name of a tensor where nobody knows a better one."""
    return f"argument {index}"


def signature_change(known: Sequence[Signature], signature: Signature, name_of: NameOf) -> str:
    """How a call's arguments differ from those of earlier calls; shapes from the most similar one's, dimension by dimension.

    Args:
        known: signatures of earlier calls: (structure, ((shape, dtype), ...)).
        signature: that of the call.
        name_of: names its tensors.
    """
    structure, kinds = signature
    if any(kinds_ == kinds for _, kinds_ in known):
        return f"other arguments that are no tensors: {structure}"
    similar = [kinds_ for structure_, kinds_ in known if structure_ == structure and len(kinds_) == len(kinds)]
    if not similar:
        return f"other structure of the arguments, with the shapes {[tuple(shape) for shape, _ in kinds]}"
    nearest = min((_differences(kinds_, kinds) for kinds_ in similar), key=len)
    return ", ".join(f"{name_of(structure, index)}{text}" for index, text in nearest)


def _differences(before: Sequence[Kind], now: Sequence[Kind]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for index, ((old, old_dtype), (new, new_dtype)) in enumerate(zip(before, now, strict=True)):
        if len(old) != len(new):
            found.append((index, f": {len(old)} dimensions -> {len(new)}"))
        else:
            changed = [(axis, a, b) for axis, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
            found += [(index, f" dimension {axis}: {a} -> {b}") for axis, a, b in changed]
        if old_dtype != new_dtype:
            found.append((index, f" dtype: {old_dtype} -> {new_dtype}"))
    return found


_STEPS_OF_A_PROGRAM = 32
"""How many steps the programs of a limit have to serve on average: one for each epoch of a long run is no mistake."""


def require_programs(count: int, limit: int, reasons: Sequence[str], steps: int) -> None:
    """Raise when a step needs one more program than it may have, and has asked for them again and again.

    Args:
        count: how many programs it has.
        limit: how many it may have.
        reasons: why they were compiled, the newest last.
        steps: how many steps the last ones have run, as many as it may have.

    Raises:
        RecompileLimitError: the limit is reached, and new programs come often; names what changed in the last calls.
    """
    if count < limit or steps >= limit * _STEPS_OF_A_PROGRAM:
        return
    listed = "\n".join(f"  {reason}" for reason in reasons[-5:])
    options = _FOR_SHAPES if any(_of_shapes(reason) for reason in reasons[-5:]) else _FOR_NUMBERS
    raise RecompileLimitError(
        f"The step was compiled {count} times, and the next call needs yet another program. What changed:\n{listed}\n"
        f"Options: {options}; or allow more programs with Trainer(recompile_limit=...), now {limit}.{see(Entry.RECOMPILING)}"
    )


_FOR_SHAPES = (
    "pad the batches to a few sizes with collate_fn=systolic.data.PadCollate(buckets=[64, 128, 256]), so that few programs are "
    "needed (docs/ragged.md); drop the last batch (DataLoader(drop_last=True)) where only that one is smaller, or fill it up "
    "with Trainer(pad_batches=True)"
)
_FOR_NUMBERS = (
    "numbers of Python's that change in every step (`batch_idx`, `global_step`, attributes) can be computed with, and can look "
    "up elements of tensors and of the module's NumPy arrays, all in one program; sizes, places in lists and dicts, and `if` "
    "have a program for each way (docs/steps.md)"
)


def _of_shapes(reason: str) -> bool:
    return " dimension" in reason or "shapes" in reason
