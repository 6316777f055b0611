"""`systolic launch -- python train.py`: one run in several processes, on this machine or on the hosts of a TPU slice."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from ..distributed import Ending, Pod
from ..exceptions import MisconfigurationException
from ._command import Command
from ._launch_tpu import Launch, add_tpu_arguments, refuse_tpu_options, write_startup_script


def _add_arguments(parser: ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--processes", type=_count, metavar="N", help="start so many on this machine")
    where.add_argument("--tpu", metavar="NAME", help="start one on every host of this TPU slice, by gcloud")
    parser.add_argument(
        "--devices-per-process",
        type=_count,
        metavar="M",
        help="CPU cores that each of them simulates (default: 1)",
    )
    parser.add_argument(
        "--processes-per-host", type=_count, metavar="K", help="how many of them take themselves to be on one host (default: 1)"
    )
    parser.add_argument(
        "--max-restarts", type=int, default=0, metavar="K", help="how often all start again after one has failed (default: 0)"
    )
    parser.add_argument(
        "--grace-period", type=float, default=30.0, metavar="S", help="seconds to end after Ctrl-C or SIGTERM (default: 30)"
    )
    add_tpu_arguments(parser)


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
    if options.tpu and options.startup_script:
        return write_startup_script(options)
    if not options.rest:
        raise MisconfigurationException(
            "There is no command to launch. Expected one after `--`, for example: "
            f"systolic launch {'--processes 2' if options.processes else f'--tpu {options.tpu} --zone ZONE'} -- python train.py"
        )
    return _on_slice(options) if options.tpu else _here(options)


def _here(options: Namespace) -> int:
    refuse_tpu_options(options)
    command = options.rest
    if Path(command[0]).suffix == ".py":
        command = [sys.executable, *command]
    pod = Pod(
        command,
        options.processes,
        options.devices_per_process or 1,
        processes_per_host=options.processes_per_host or 1,
        grace_period=options.grace_period,
    )
    return _again_and_again(lambda: Ending(pod.run(), pod.interrupted), options.max_restarts)


def _on_slice(options: Namespace) -> int:
    launch = Launch(options, options.rest)
    if options.dry_run:
        sys.stdout.write(launch.describe())
        return 0
    return launch.copy().code or _again_and_again(launch.run, options.max_restarts)


def _again_and_again(attempt: Callable[[], Ending], max_restarts: int) -> int:
    code, interrupted = attempt()
    for number in range(1, max_restarts + 1):
        if not code or interrupted:
            break
        sys.stderr.write(f"systolic launch: starting again ({number} of {max_restarts})\n")
        code, interrupted = attempt()
    return code


LAUNCH = Command(
    "launch",
    "start one run in several processes, here or on the hosts of a TPU slice, and end them together",
    _add_arguments,
    _run,
    takes_rest=True,
)
