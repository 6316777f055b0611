"""`systolic launch --processes N -- python train.py`: a pod of processes on this machine."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..distributed import Pod
from ..exceptions import MisconfigurationException
from ._command import Command


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--processes", type=_count, required=True, metavar="N", help="how many; each stands for a host")
    parser.add_argument(
        "--devices-per-process",
        type=_count,
        default=1,
        metavar="M",
        help="CPU cores that each of them simulates (default: 1)",
    )
    parser.add_argument(
        "--max-restarts", type=int, default=0, metavar="K", help="how often all start again after one has failed (default: 0)"
    )
    parser.add_argument(
        "--grace-period", type=float, default=30.0, metavar="S", help="seconds to end after Ctrl-C or SIGTERM (default: 30)"
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


_count.__name__ = "positive number"


def _run(options: Namespace) -> int:
    if options.max_restarts < 0:
        raise MisconfigurationException(f"--max-restarts expects an integer >= 0. Received: {options.max_restarts}.")
    if not options.grace_period > 0:
        raise MisconfigurationException(f"--grace-period expects seconds, more than 0. Received: {options.grace_period}.")
    command = options.rest
    if not command:
        raise MisconfigurationException(
            "There is no command to launch. Expected one after `--`, for example: "
            "systolic launch --processes 2 -- python train.py"
        )
    if Path(command[0]).suffix == ".py":
        command = [sys.executable, *command]
    pod = Pod(command, options.processes, options.devices_per_process, grace_period=options.grace_period)
    code = pod.run()
    for attempt in range(1, options.max_restarts + 1):
        if not code or pod.interrupted:
            break
        sys.stderr.write(f"systolic launch: starting again ({attempt} of {options.max_restarts})\n")
        code = pod.run()
    return code


LAUNCH = Command(
    "launch", "start a pod of processes on this machine, and end them together", _add_arguments, _run, takes_rest=True
)
