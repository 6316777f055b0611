"""`systolic run train.py ARGS`: a script that imports Lightning, run with systolic."""

from __future__ import annotations

import importlib
import runpy
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from pathlib import Path

from ..exceptions import MisconfigurationException
from ._command import Command


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("script", help="a Python file that imports lightning, lightning.pytorch or pytorch_lightning")
    parser.add_argument("arguments", nargs=REMAINDER, help="the script's own arguments")


def _run(options: Namespace) -> int:
    script = Path(options.script)
    if not script.is_file():
        raise MisconfigurationException(f"There is no file {str(script)!r}. Expected the path of a Python script.")
    importlib.import_module("systolic.as_lightning")
    own, path = sys.argv, list(sys.path)
    sys.argv, sys.path[:0] = [str(script), *options.arguments, *options.rest], [str(script.parent.resolve())]
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = own, path
    return 0


RUN = Command("run", "run a script that imports Lightning, with systolic in its place", _add_arguments, _run, takes_rest=True)
