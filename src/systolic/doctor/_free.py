"""End the processes that hold the chips."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..hardware import Holder
from ..utilities._processes import ancestors, read_process


@dataclass(frozen=True)
class Outcome:
    """Outcome for one process.

    Attributes:
        holder: the process.
        ended: whether it holds nothing any more.
        text: how it ended, or why it was left alone.
    """

    holder: Holder
    ended: bool
    text: str


def free_chips(
    holders: Sequence[Holder],
    confirm: Callable[[Sequence[Holder]], bool],
    *,
    others: bool = False,
    patience_seconds: float = 10.0,
) -> list[Outcome]:
    """End the processes that hold chips: ask them to (SIGTERM), and make those that do not (SIGKILL).

    This process and those that started it are never ended.

    Args:
        holders: the processes.
        confirm: is asked once, with the processes that would be ended.
        others: whether processes of other users are ended too.
        patience_seconds: how long a process may take to end by itself.

    Returns:
        One outcome for every holder.
    """
    refusals = {holder: _refusal(holder, others) for holder in holders}
    chosen = [holder for holder, reason in refusals.items() if not reason]
    outcomes = [Outcome(holder, False, reason) for holder, reason in refusals.items() if reason]
    if chosen and not confirm(chosen):
        return outcomes + [Outcome(holder, False, "left alone: not confirmed") for holder in chosen]
    return outcomes + [_end(holder, patience_seconds) for holder in chosen]


def _refusal(holder: Holder, others: bool) -> str:
    if holder.process.pid in ancestors():
        return "left alone: it started this command. In a notebook, restart the kernel"
    if holder.process.uid != os.getuid() and not others:
        return f"left alone: it belongs to user {holder.process.user}. Add --yes to end it too"
    return ""


def _end(holder: Holder, patience: float) -> Outcome:
    pid = holder.process.pid
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return Outcome(holder, True, "had ended already")
    try:
        # The handle names one process for ever; the number may have been given to another one before it was opened.
        now = read_process(pid)
        if now is None or now.start_ticks != holder.process.start_ticks:
            return Outcome(holder, True, "had ended already")
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if _has_ended(handle, patience):
            return Outcome(holder, True, "ended")
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        ended = _has_ended(handle, patience)
        return Outcome(
            holder, ended, "killed: it did not end when asked" if ended else "cannot be ended: it hangs in the kernel"
        )
    except PermissionError:
        return Outcome(holder, False, f"left alone: it belongs to user {holder.process.user}. Run with sudo")
    except ProcessLookupError:
        return Outcome(holder, True, "ended")
    finally:
        os.close(handle)


def _has_ended(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
