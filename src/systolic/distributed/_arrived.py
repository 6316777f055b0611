"""Who has reached process 0 so far, by the operating system's table of connections: JAX's service tells nobody."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ESTABLISHED = "01"  # include/net/tcp_states.h of Linux


@dataclass(frozen=True)
class _Connection:
    local_port: int
    address: str
    remote_port: int
    inode: str


def arrived(port: int) -> Counter[str] | None:
    """The addresses from which other processes are connected to a port of this one, and how many from each.

    Args:
        port: the one that this process listens at.

    Returns:
        None where the operating system has no such table (it is Linux's).
    """
    connections = list(_connections())
    if not connections:
        return None
    mine = _inodes()
    own = {one.local_port for one in connections if one.remote_port == port and one.inode in mine}
    return Counter(one.address for one in connections if one.local_port == port and one.remote_port not in own)


def is_connected(port: int) -> bool | None:
    """Whether this process is connected to a port of any host.

    Args:
        port: the one at the other end.

    Returns:
        None where the operating system has no table of connections (it is Linux's).
    """
    if not Path("/proc/self/net/tcp").exists():
        return None
    mine = _inodes()
    return any(one.remote_port == port and one.inode in mine for one in _connections())


def _connections() -> Iterator[_Connection]:
    """Established connections of this host; https://www.kernel.org/doc/Documentation/networking/proc_net_tcp.txt."""
    for name in ("tcp", "tcp6"):
        table = Path("/proc/self/net", name)
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            fields = line.split()
            if fields[3] == _ESTABLISHED:
                local, remote = fields[1].split(":"), fields[2].split(":")
                yield _Connection(int(local[1], 16), _address(remote[0]), int(remote[1], 16), fields[9])


def _address(text: str) -> str:
    """An address of the table: words of four bytes in this machine's order."""
    words = (int(text[i : i + 8], 16) for i in range(0, len(text), 8))
    address = ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _inodes() -> set[str]:
    """The sockets of this process."""
    found: set[str] = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found
