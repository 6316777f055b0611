"""The hosts that the processes of a run are on: one host may have several."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

HOST = "SYSTOLIC_HOST"
"""The environment variable that names the host where its own name does not tell, as on a machine that plays several."""

_NAME = "systolic/host"
_PATIENCE_MS = 120_000
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Host:
    """The host of this process, among those of the run.

    Attributes:
        index: its number, in the order of the first process on each.
        count: how many hosts there are.
        local: the number of this process among those on its host, from 0.
        is_told: whether `SYSTOLIC_HOST` names it: hosts that are told apart so may be one machine.
    """

    index: int = 0
    count: int = 1
    local: int = 0
    is_told: bool = False


_own = Host()


def host() -> Host:
    """The host of this process.

    Example:
        >>> from systolic.distributed import host
        >>> host().local
        0
    """
    return _own if jax.distributed.is_initialized() else Host()


def meet_hosts(client: Any, process: int, processes: int, environment: Mapping[str, str] = os.environ) -> None:
    """Tell the other processes which host this one is on, and learn theirs.

    Args:
        client: of the coordination service.
        process: the number of this process.
        processes: how many there are.
        environment: where `SYSTOLIC_HOST` is looked up.
    """
    global _own  # noqa: PLW0603  # as of JAX's runtime there is one of it in a process
    told = environment.get(HOST)
    client.key_value_set(f"{_NAME}/{process}", told or _name())
    names = [client.blocking_key_value_get(f"{_NAME}/{other}", _PATIENCE_MS) for other in range(processes)]
    hosts = list(dict.fromkeys(names))
    own = names[process]
    _own = Host(hosts.index(own), len(hosts), names[:process].count(own), bool(told))


def _name() -> str:
    """A name that no two hosts share: many call themselves localhost."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return f"{socket.gethostname()} {boot}"
