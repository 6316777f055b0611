"""`systolic launch --tpu NAME --zone ZONE -- python train.py`: a run on all hosts of a TPU slice."""

from __future__ import annotations

import shlex
import shutil
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from .. import __version__
from ..distributed import Ending, TpuSlice, copy_command, run_attached, run_command, startup_script
from ..exceptions import MisconfigurationException

_RETURN_SECONDS = 10.0
"""For what the hosts said last, and how they ended, to come back."""

_OPTIONS = ("zone", "project", "internal_ip", "dry_run", "copy", "startup_script", "install", "fetch")


def add_tpu_arguments(parser: ArgumentParser) -> None:
    """Declare the options that belong to `--tpu`."""
    group = parser.add_argument_group("with --tpu")
    group.add_argument("--zone", help="the zone of the slice")
    group.add_argument("--project", help="its project (default: gcloud's)")
    group.add_argument("--internal-ip", action="store_true", help="reach the hosts by the addresses of their own network")
    group.add_argument("--copy", type=Path, metavar="DIR", help="copy this directory to all hosts first, and run there")
    group.add_argument("--dry-run", action="store_true", help="print what would be run or written, and do neither")
    group.add_argument(
        "--startup-script",
        type=Path,
        metavar="FILE",
        help="write the script with which hosts install systolic and fetch data when they boot; runs nothing",
    )
    group.add_argument(
        "--install",
        action="append",
        metavar="REQUIREMENT",
        help=f"what that script installs; may be repeated (default: {_requirement()})",
    )
    group.add_argument("--fetch", metavar="gs://...", help="the data that it copies to /opt/systolic/data")


def refuse_tpu_options(options: Namespace) -> None:
    """Refuse options that mean nothing without `--tpu`.

    Args:
        options: those of a launch on this machine.

    Raises:
        MisconfigurationException: one of them is there.
    """
    given = [f"--{name.replace('_', '-')}" for name in _OPTIONS if getattr(options, name)]
    if given:
        raise MisconfigurationException(
            f"{', '.join(given)} belongs to --tpu NAME. Received: --processes {options.processes}, which starts processes on "
            "this machine. Leave one of the two out."
        )


def write_startup_script(options: Namespace) -> int:
    """Write the script of `--startup-script`, or print it in a dry run.

    Args:
        options: those of a launch with `--tpu`.

    Raises:
        MisconfigurationException: a command is there too, the file is, or it cannot be written.
    """
    if options.rest:
        raise MisconfigurationException(
            "--startup-script writes a file and runs nothing. Expected: no command. Received: "
            f"{shlex.join(options.rest)!r}. Launch it when the hosts are up."
        )
    if options.fetch and not options.fetch.startswith("gs://"):
        raise MisconfigurationException(f"--fetch expects an address that begins with gs://. Received: {options.fetch!r}.")
    text = startup_script(options.install or [_requirement()], options.fetch)
    if options.dry_run:
        sys.stdout.write(text)
        return 0
    try:
        with options.startup_script.open("x") as file:
            file.write(text)
    except OSError as error:
        raise MisconfigurationException(
            f"--startup-script cannot write {str(options.startup_script)!r}: {error.strerror}. Expected: a file "
            "that is not there yet, in a directory that is."
        ) from error
    sys.stdout.write(f"For `gcloud compute tpus`: --metadata-from-file=startup-script={options.startup_script}\n")
    return 0


class Launch:
    """A command on all hosts of a slice, with the code that is copied before.

    Args:
        options: those of a launch with `--tpu`, checked.
        command: what each host runs.

    Raises:
        MisconfigurationException: there is no such directory to copy, or no gcloud.
    """

    def __init__(self, options: Namespace, command: list[str]) -> None:
        tpu = _slice_of(options)
        if options.fetch or options.install:
            raise MisconfigurationException("--install and --fetch belong to --startup-script FILE. Received: no such file.")
        if options.copy is not None and not options.copy.is_dir():
            raise MisconfigurationException(
                f"--copy expects a directory of this machine. Received: {str(options.copy)!r}, which is none."
            )
        directory = "." if options.copy is None else options.copy.resolve().name
        if not directory:
            raise MisconfigurationException("--copy expects a directory with a name. Received: '/'.")
        if Path(command[0]).suffix == ".py":
            command = ["python3", *command]
        self._grace_period: float = options.grace_period
        self._copy = None if options.copy is None else copy_command(tpu, options.copy)
        self._run = run_command(tpu, command, directory, options.grace_period)
        if not options.dry_run and shutil.which("gcloud") is None:
            raise MisconfigurationException(
                "--tpu starts the command by gcloud. Expected: gcloud on PATH. Received: none. Install the Google Cloud CLI "
                "(https://cloud.google.com/sdk/docs/install), or look at --dry-run."
            )

    def describe(self) -> str:
        """The commands as a shell reads them, one a line."""
        return "".join(f"{shlex.join(command)}\n" for command in (self._copy, self._run) if command is not None)

    def copy(self) -> Ending:
        """Copy the code, if there is some to copy."""
        return Ending(0, False) if self._copy is None else run_attached(self._copy, 0.0)

    def run(self) -> Ending:
        """Run the command on all hosts until all have ended."""
        return run_attached(self._run, self._grace_period + _RETURN_SECONDS)


def _slice_of(options: Namespace) -> TpuSlice:
    if options.devices_per_process is not None:
        raise MisconfigurationException(
            "--devices-per-process is how many cores of this machine's CPU a process simulates. Received: it and "
            f"--tpu {options.tpu}. Leave it out: a host's process drives all of its chips."
        )
    if options.processes_per_host is not None:
        raise MisconfigurationException(
            "--processes-per-host is how many processes of this machine take themselves to be on one host. Received: it and "
            f"--tpu {options.tpu}. Leave it out: one process is started on every host."
        )
    if not options.zone:
        raise MisconfigurationException(
            f"--tpu {options.tpu} needs the zone of the slice. Expected, for example: --zone us-east5-b. Received: none."
        )
    return TpuSlice(options.tpu, options.zone, options.project, options.internal_ip)


def _requirement() -> str:
    return f"systolic[tpu]=={__version__}"
