"""A script that runs up to its first fit, validate, test or predict, for commands that do something else there."""

from __future__ import annotations

import contextlib
import runpy
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from ..exceptions import MisconfigurationException
from ..preflight import parse_slice, slice_devices
from ..runtime import Devices
from ..trainer import Intended, intercepting

T = TypeVar("T")

EPILOG = (
    "Everything else is handed to the script; after a lone -- so are words that {command} would take itself. The script runs "
    "unmodified up to its first trainer.fit, validate, test or predict."
)


class _Reached(BaseException):
    """Leaves the script; it is no Exception, so that the script's own handlers do not take it."""


class _Instead(Generic[T]):
    """Gives Trainers the devices of a slice, and does something in place of what they are called for."""

    def __init__(self, slice: str, act: Callable[[Intended, tuple[str, Devices]], T]) -> None:
        self._slice, self._act = slice, act
        self._requested: tuple[str, Devices] = ("auto", "auto")
        self.found: T | None = None

    def devices(self, accelerator: str, devices: Devices) -> list[Any]:
        """The slice's, whatever the script asks for."""
        self._requested = (accelerator, devices)
        return slice_devices(parse_slice(self._slice))

    def reached(self, intended: Intended) -> NoReturn:
        """Do it, and leave the script."""
        self.found = self._act(intended, self._requested)
        raise _Reached


def instead_of_running(options: Namespace, command: str, slice: str, act: Callable[[Intended, tuple[str, Devices]], T]) -> T:
    """Run a script up to its first call of a Trainer.

    Args:
        options: the script, and the words that are handed to it.
        command: its name, for errors.
        slice: whose devices the script's Trainers get.
        act: called in place of the Trainer's method, with what the script asked for: accelerator and devices.

    Returns:
        What `act` returned.

    Raises:
        MisconfigurationException: there is no script, or it ends before.
    """
    script: Path = options.script
    if not script.is_file():
        raise MisconfigurationException(f"There is no script {str(script)!r}. Usage: systolic {command}")
    instead = _Instead(slice, act)
    # standard output is for the report
    with _as_main(script, options.rest), contextlib.redirect_stdout(sys.stderr), intercepting(instead):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except _Reached:
            assert instead.found is not None, "it was left after the act"
            return instead.found
        except SystemExit as error:
            raise MisconfigurationException(
                f"{script} ended with sys.exit({error.code!r}) before it called fit, validate, test or predict of a systolic "
                "Trainer. Give it the arguments with which it does, behind its name."
            ) from error
    raise MisconfigurationException(
        f"{script} ended without calling fit, validate, test or predict of a systolic Trainer. Give it the arguments with "
        "which it does, behind its name."
    )


@contextlib.contextmanager
def _as_main(script: Path, arguments: list[str]) -> Iterator[None]:
    """As Python would start a script: its own words, and its folder first on the path."""
    before = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path[0:0] = [str(script.resolve().parent)]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before
