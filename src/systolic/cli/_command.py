"""Definition of a subcommand of `systolic`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One subcommand.

    Attributes:
        name: what is typed after `systolic`.
        summary: one line for `systolic --help`.
        add_arguments: declares the options.
        run: does the work and returns the exit status.
        takes_rest: whether words that are no options of its own are accepted; they stand in `options.rest`.
    """

    name: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    takes_rest: bool = False
