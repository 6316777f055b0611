"""Checks of the chips' files and their holders."""

from __future__ import annotations

import os
from pathlib import Path

from ..hardware import Holders, chip_files, is_locked, lock_file
from ._finding import Finding, Level


def check_chips(found: Holders, root: Path = Path("/")) -> list[Finding]:
    """Check which chips there are, whether this user may open them, and who holds them.

    Args:
        found: the processes that hold them.
        root: the directory whose `dev` and `tmp` are looked at.
    """
    files = chip_files(root)
    if files:
        findings = [Finding(Level.OK, f"TPU chips: {', '.join(map(str, files))}")]
        closed = [str(path) for path in files if not os.access(path, os.R_OK | os.W_OK)]
        if closed:
            findings.append(
                Finding(Level.ERROR, f"this user may not open {', '.join(closed)}", "use sudo, or join their group")
            )
        findings += [Finding(Level.ERROR, f"held by {holder}", "systolic doctor --free") for holder in found.holders]
        findings += _hidden(found)
    else:
        findings = [Finding(Level.OK, "no TPU chips (no /dev/accel*, no /dev/vfio/[0-9]*)")]
    return findings + _lock(found, root)


def _lock(found: Holders, root: Path) -> list[Finding]:
    lock = lock_file(root)
    if lock is None or any(str(lock.absolute()) in holder.files for holder in found.holders):
        return []
    if is_locked(lock):
        # one that compiles for a TPU that is not here takes the lock too; that keeps nobody from anything
        return [Finding(Level.OK, f"{lock} is locked: a process has loaded libtpu, and none that can be seen has a chip")]
    if os.access(lock, os.R_OK | os.W_OK):
        return [Finding(Level.OK, f"{lock} is there, and no visible process holds it")]
    text = f"{lock} belongs to another user (uid {lock.stat().st_uid}): libtpu cannot open it and reports a TPU in use"
    return [Finding(Level.ERROR, text, f"sudo rm {lock}")]


def _hidden(found: Holders) -> list[Finding]:
    if not found.hidden:
        return []
    text = f"{found.hidden} processes of other users could not be looked into; one of them may hold the chips"
    return [Finding(Level.WARNING, text, "sudo systolic doctor")]
