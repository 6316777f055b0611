"""Agreement between processes, over the key-value store of JAX's coordination service.

Not by collectives on the devices: those are programs that have to be the same everywhere, and processes that are about to
disagree would hang in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

from ..exceptions import MisconfigurationException
from ._process import process_count, process_index
from ._questions import QUESTIONS

T = TypeVar("T")


def agree(decision: bool, on: Literal["any", "all"] = "any") -> bool:
    """Joint decision of all processes. All of them must ask, in the same order.

    Args:
        decision: this process's.
        on: "any": whether one says yes; "all": whether all do.

    Example:
        >>> from systolic.distributed import agree
        >>> agree(True)
        True
    """
    return decision if process_count() == 1 else (any if on == "any" else all)(gather("agree on a decision", decision))


def gather(asked: str, value: T) -> list[T]:
    """The values of all processes, in their order. All of them must ask, in the same order.

    Args:
        asked: what for; a process that asks for something else meanwhile is told so.
        value: this process's, which can be pickled.

    Example:
        >>> from systolic.distributed import gather
        >>> gather("sizes", 3)
        [3]
    """
    return [value] if process_count() == 1 else QUESTIONS.gather(asked, value)


def broadcast(value: T, source: int = 0) -> T:
    """The value of one process, in all of them.

    Args:
        value: anything that can be pickled; only the source's matters.
        source: the number of the process.
    """
    if process_count() == 1:
        return value
    return QUESTIONS.gather("broadcast", value if process_index() == source else None, [source])[0]


def barrier(name: str = "") -> None:
    """Wait until all processes are here, however long that takes.

    Args:
        name: says in errors what is waited for.
    """
    if process_count() > 1:
        QUESTIONS.gather(f"wait for all ({name})", None, patience=None)


def require_same(what: str, values: Mapping[str, object], advice: str) -> None:
    """Compare what must be the same in all processes, which would hang or go wrong without a word otherwise.

    Args:
        what: is compared, for the error.
        values: by what they say; they have a `str`.
        advice: what to do about a difference.

    Raises:
        MisconfigurationException: they differ; in all processes, naming who has what.

    Example:
        >>> from systolic.distributed import require_same
        >>> require_same("the data", {"samples": 10}, "Give all the same.")
    """
    if process_count() == 1:
        return
    found = gather(f"compare {what}", {name: str(value) for name, value in values.items()})
    names = dict.fromkeys(name for one in found for name in one)
    told = [_difference(name, [one.get(name, "nothing") for one in found]) for name in names]
    differences = [line for line in told if line]
    if differences:
        raise MisconfigurationException(
            f"The processes of this run differ in {what}. Expected: the same in all {len(found)}. Received: "
            f"{'; '.join(differences)}. {advice}"
        )


def _difference(name: str, values: list[str]) -> str:
    """Who has what; empty where all have the same."""
    holders: dict[str, list[int]] = {}
    for process, value in enumerate(values):
        holders.setdefault(value, []).append(process)
    if len(holders) == 1:
        return ""
    return f"{name} is {', '.join(f'{value} in {_named(processes)}' for value, processes in holders.items())}"


def _named(processes: list[int]) -> str:
    shown = ", ".join(map(str, processes[:8])) + (f" and {len(processes) - 8} more" if len(processes) > 8 else "")
    return f"process{'es' if len(processes) > 1 else ''} {shown}"


def seconds_waited() -> float:
    """How long this process has waited for the others' answers, all together."""
    return QUESTIONS.waited
