"""Agreement between processes, over the key-value store of JAX's coordination service.

Not by collectives on the devices: those are programs that have to be the same everywhere, and processes that are about to
disagree would hang in them.
"""

from __future__ import annotations

import base64
import itertools
import pickle
from typing import Any, Literal, TypeVar

# the client has no public name; it is the service that `jax.distributed.initialize` starts
from ..utilities._jax_internals import global_state
from ._process import process_count, process_index

T = TypeVar("T")

_PATIENCE_MS = 10 * 60 * 1000
"""How long a process waits for the others: one may be compiling."""

# Every process asks the same questions in the same order, so that a running number names the question.
_questions = itertools.count()


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
    if process_count() == 1:
        return decision
    answers = _answers(b"1" if decision else b"0")
    return (any if on == "any" else all)(answer == b"1" for answer in answers)


def broadcast(value: T, source: int = 0) -> T:
    """The value of one process, in all of them.

    Args:
        value: anything that can be pickled; only the source's matters.
        source: the number of the process.
    """
    if process_count() == 1:
        return value
    name = f"systolic/broadcast/{next(_questions)}"
    if process_index() == source:
        _client().key_value_set(name, base64.b64encode(pickle.dumps(value)).decode())
        return value
    # what arrives was written by a process of this run, under the same user
    return pickle.loads(base64.b64decode(_client().blocking_key_value_get(name, _PATIENCE_MS)))


def barrier(name: str = "") -> None:
    """Wait until all processes are here.

    Args:
        name: says in errors what is waited for.
    """
    if process_count() > 1:
        _client().wait_at_barrier(f"systolic/barrier/{next(_questions)}/{name}", _PATIENCE_MS)


def _answers(own: bytes) -> list[bytes]:
    name, client = f"systolic/agree/{next(_questions)}", _client()
    client.key_value_set(f"{name}/{process_index()}", own.decode())
    return [client.blocking_key_value_get(f"{name}/{i}", _PATIENCE_MS).encode() for i in range(process_count())]


def _client() -> Any:
    assert global_state.client is not None, "the processes have not met"
    return global_state.client
