"""A connection of every process to the first one, over which nothing is said: its end is the end of a process.

The kernel closes it at once when a process is killed, while JAX's signs of life take forty seconds to run out. A host that
vanishes closes nothing: for it, and where the connection cannot be made, JAX's signs of life remain.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
from collections.abc import Callable
from typing import Any

_NAME = "systolic/touch"
_PATIENCE_MS = 120_000
_CONNECT_SECONDS, _LOOK_SECONDS = 10.0, 0.3
_GOODBYE = b"e"
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 20), (socket.TCP_KEEPCNT, 6))
"""Seconds: clouds forget connections over which nothing goes for ten minutes."""


class Touch:
    """Connections between the first process and the others.

    Args:
        client: of the coordination service.
        process: the number of this process.
        host: of the first process.
    """

    def __init__(self, client: Any, process: int, host: str) -> None:
        self._client, self._process, self._host = client, process, host
        self._open: dict[socket.socket, int] = {}
        self._ended = False

    def watch(self, gone: Callable[[int], None]) -> None:
        """In a thread: wait for the end of the others.

        Args:
            gone: is called with the number of a process that ended without a word.
        """
        with contextlib.ExitStack() as sockets:
            if self._process == 0:
                self._serve(gone, sockets)
            else:
                self._hold(gone, sockets)

    def end(self) -> None:
        """This process ends in good order: say so, and only then let the connections close."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):  # the other one has ended before
                connection.sendall(_GOODBYE)
        self._ended = True

    def _serve(self, gone: Callable[[int], None], sockets: contextlib.ExitStack) -> None:
        listener = sockets.enter_context(socket.create_server(("", 0), backlog=1024))
        secret = secrets.token_hex(16)
        self._client.key_value_set(_NAME, f"{listener.getsockname()[1]} {secret}")
        waiting = sockets.enter_context(selectors.DefaultSelector())
        waiting.register(listener, selectors.EVENT_READ)
        while not self._ended:
            for key, _ in waiting.select(_LOOK_SECONDS):
                if key.fileobj is listener:
                    connection = sockets.enter_context(listener.accept()[0])
                    process = _greeted(connection, secret)
                    if process is not None:
                        self._open[connection] = process
                        waiting.register(connection, selectors.EVENT_READ)
                    continue
                connection = key.fileobj
                assert isinstance(connection, socket.socket), "what was registered"
                process, lost = self._open[connection], _is_lost(connection)
                waiting.unregister(connection)
                del self._open[connection]
                if lost and not self._ended:
                    gone(process)

    def _hold(self, gone: Callable[[int], None], sockets: contextlib.ExitStack) -> None:
        port, secret = self._client.blocking_key_value_get(_NAME, _PATIENCE_MS).split()
        try:
            connection = sockets.enter_context(socket.create_connection((self._host, int(port)), _CONNECT_SECONDS))
            _keep_alive(connection)
            connection.sendall(f"{secret} {self._process:08d}".encode())
        except OSError:
            return  # a firewall: JAX's signs of life remain
        self._open[connection] = 0
        connection.settimeout(_LOOK_SECONDS)
        while not self._ended:
            try:
                lost = _is_lost(connection)
            except TimeoutError:
                continue
            if lost and not self._ended:
                gone(0)
            return


def _greeted(connection: socket.socket, secret: str) -> int | None:
    """The number of the process that has connected; None for anybody else."""
    connection.settimeout(_CONNECT_SECONDS)
    try:
        said = connection.recv(len(secret) + 9, socket.MSG_WAITALL).decode(errors="replace")
    except OSError:
        return None
    _keep_alive(connection)
    known, _, process = said.partition(" ")
    return int(process) if secrets.compare_digest(known.encode(), secret.encode()) and process.isdigit() else None


def _is_lost(connection: socket.socket) -> bool:
    """Whether a connection that has something to read was closed by the end of a process, without a goodbye."""
    try:
        return connection.recv(1) != _GOODBYE
    except ConnectionResetError:
        return True
    except TimeoutError as error:
        if error.errno is None:  # nothing was said so far; otherwise the other host answers no more
            raise
        return True


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in _KEEP_ALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, seconds)
