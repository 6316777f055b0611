"""Comparison of a program between the processes that will run it together, before it is compiled."""

from __future__ import annotations

import difflib
import hashlib

import jax

from ...distributed import gather, process_index
from ...exceptions import MisconfigurationException

_SHOWN = 160


def require_same_program(lowered: jax.stages.Lowered, reason: str) -> None:
    """Refuse a program that differs between the processes: left to themselves they would hang in it.

    Args:
        lowered: what this process is about to compile; all of them do, at the same place.
        reason: why it is compiled.

    Raises:
        MisconfigurationException: another process's is not the same; says in what it differs.
    """
    text = lowered.as_text()
    own = (hashlib.sha1(text.encode()).hexdigest(), reason)
    found = gather("compile a program", own)
    if all(digest == found[0][0] for digest, _ in found):
        return
    different = next(process for process, (digest, _) in enumerate(found) if digest != found[0][0])
    texts = gather("show a program", text if process_index() in (0, different) else "")
    first, second = _first_difference(texts[0], texts[different])
    raise MisconfigurationException(
        f"The processes of this run would compile different programs: process {different} has `{second}` where process 0 has "
        f"`{first}`; compiled because of: {found[different][1]} (process {different}), {found[0][1]} (process 0). Expected: "
        "the same steps in every process, for the same shapes. Look for the rank, the time or the host in numbers and "
        "conditions of the step, and for batches whose shapes differ between processes."
    )


def _first_difference(one: str, other: str) -> tuple[str, str]:
    """The first lines that only one text has."""
    lines = difflib.unified_diff(one.splitlines(), other.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    shown = [next((line[1:].strip()[:_SHOWN] for line in changed if line.startswith(sign)), "nothing") for sign in "-+"]
    return shown[0], shown[1]
