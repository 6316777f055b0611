"""Hosts of a TPU slice, reached by gcloud: the commands that ship code to all of them and run a program on all of them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ._tpu_startup import PREFIX

# One line, so that a dry run prints one line for each command. Its arguments: a directory, seconds, a program, its arguments.
_ON_A_HOST = (
    # Hosts of a slice are called SOMETHING-w-NUMBER; of a bar that is drawn over and over in its line, how it looked last.
    'exec > >(exec sed -u "s/\\r*$//; s/.*\\r//; s/^/[${HOSTNAME##*-w-}] /") 2>&1 3<&0 </dev/null; '
    f'cd -- "$1" || exit; grace=$2; shift 2; PATH="{PREFIX}/venv/bin:$PATH"; export PYTHONUNBUFFERED=1; '
    # Job control gives the program a group of its own, and Ctrl-C its meaning.
    'set -m; "$@" 3<&- & program=$!; '
    # ssh without a terminal passes no signals on: all that a host sees of the end of the other side is the end of its input.
    "( while read -r -u 3 _; do :; done; kill -TERM $program; "
    "for ((second = 0; second < grace; second++)); do sleep 1; kill -0 $program || exit; done; kill -KILL -- -$program ) "
    ">/dev/null 2>&1 & watch=$!; set +m; wait $program 2>/dev/null; code=$?; kill -KILL -- -$watch -$program 2>/dev/null; "
    # 255 says that ssh found no host, and gcloud would start the program again.
    "exit $((code == 255 ? 1 : code))"
)


@dataclass(frozen=True)
class TpuSlice:
    """A TPU slice, as gcloud finds it.

    Attributes:
        name: the TPU VM's, not its queued resource's.
        zone: where it is.
        project: whose it is; None: gcloud's default.
        internal_ip: whether its hosts are reached by the addresses of their own network.
    """

    name: str
    zone: str
    project: str | None = None
    internal_ip: bool = False


def copy_command(tpu: TpuSlice, directory: Path) -> list[str]:
    """The command that copies a directory into the home directories of all hosts, over what a copy before has left.

    Args:
        tpu: the slice.
        directory: what to copy; it keeps its name.

    Returns:
        A program and its arguments.

    Example:
        >>> from pathlib import Path
        >>> from systolic.distributed import TpuSlice, copy_command
        >>> " ".join(copy_command(TpuSlice("mine", "us-east5-b"), Path("/home/me/code")))
        'gcloud compute tpus tpu-vm scp /home/me/code mine: --recurse --worker=all --zone=us-east5-b'
    """
    return ["gcloud", "compute", "tpus", "tpu-vm", "scp", str(directory.resolve()), f"{tpu.name}:", "--recurse", *_flags(tpu)]


def run_command(tpu: TpuSlice, command: Sequence[str], directory: str, grace_period: float) -> list[str]:
    """The command that runs a program on all hosts at once, each in a session that ends with the connection.

    A host's lines have its number before them. Where the input of the command ends, the hosts' programs get SIGTERM, and
    SIGKILL after the grace period.

    Args:
        tpu: the slice.
        command: a program and its arguments; no shell reads them.
        directory: where it runs, from the home directory.
        grace_period: seconds from SIGTERM to SIGKILL.

    Returns:
        A program and its arguments.

    Example:
        >>> from systolic.distributed import TpuSlice, run_command
        >>> run_command(TpuSlice("mine", "us-east5-b"), ["python", "train.py"], "code", 30)[:6]
        ['gcloud', 'compute', 'tpus', 'tpu-vm', 'ssh', 'mine']
    """
    remote = shlex.join(["bash", "-c", _ON_A_HOST, "systolic", directory, str(math.ceil(grace_period)), *command])
    return ["gcloud", "compute", "tpus", "tpu-vm", "ssh", tpu.name, *_flags(tpu), f"--command={remote}"]


def _flags(tpu: TpuSlice) -> list[str]:
    project = [] if tpu.project is None else [f"--project={tpu.project}"]
    return ["--worker=all", f"--zone={tpu.zone}", *project, *(["--internal-ip"] if tpu.internal_ip else [])]
