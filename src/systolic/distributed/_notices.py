"""Notices that processes leave for each other: nobody waits for them, and nobody has to answer."""

from __future__ import annotations

from typing import Any

# the client has no public name; it is the service that `jax.distributed.initialize` starts
from ..utilities._jax_internals import global_state
from ._process import process_index


def leave_notice(name: str, text: str) -> None:
    """Leave a text for the others, in place of an earlier one of this process by that name. The processes must have met.

    Args:
        name: what it is about.
        text: what they may read from now on.
    """
    _client().key_value_set(f"systolic/notice/{name}/{process_index()}", text, True)


def read_notices(name: str) -> dict[int, str]:
    """The texts that processes have left so far, this one's among them, by their numbers.

    Args:
        name: what they are about.
    """
    found = _client().key_value_dir_get(f"systolic/notice/{name}")
    return {int(key.rpartition("/")[2]): text for key, text in found}


def _client() -> Any:
    assert global_state.client is not None, "the processes have not met"
    return global_state.client
