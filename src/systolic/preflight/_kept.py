"""Path on disk of the compiler's cached answer about a program."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
from pathlib import Path

from ..runtime import described_programs


def kept_at(program: str, target: str) -> Path | None:
    """The file for a program, which need not exist; None where nothing is to be kept.

    Args:
        program: its StableHLO, with locations.
        target: names the topology, and what else the answer depends on.
    """
    directory = described_programs()
    if directory is None:
        return None
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib", "libtpu")]
    flags = [os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    digest = hashlib.sha256("\n".join([named(program), target, *versions, *flags]).encode()).hexdigest()
    return directory / f"{digest[:40]}.json.gz"


def named(program: str) -> str:
    r"""A program with the names of its ops, which reports show, and without the Python frames that made them.

    The frames begin in whoever called: with them, a program would be another one for each caller, and for each line that is
    added to systolic.

    Args:
        program: StableHLO, with locations.

    Example:
        >>> named('%0 = sine %x loc(#loc2)\n#loc1 = loc("a.py":4:15)\n#loc2 = loc("jit(f)/sin"(#loc1))')
        '%0 = sine %x loc("jit(f)/sin")'
    """
    names = dict(_DEFINED.findall(program))
    body = "\n".join(line for line in program.splitlines() if not line.startswith("#loc"))
    return _PLACE.sub(lambda place: f"loc({place['name'] or names.get(place['frames'], '')})", body)


_NAME = r'"(?:[^"\\]|\\.)*"'
_DEFINED = re.compile(rf"^(#loc\d+) = loc\(({_NAME})\(#loc", re.MULTILINE)
# loc(#loc1), loc("sin"(#loc1)), loc("x"), loc(callsite(#loc1 at #loc2))
_PLACE = re.compile(rf'\bloc\((?P<name>{_NAME})?(?P<frames>(?:[^()"]|\((?:[^()"]|\([^()"]*\))*\))*)\)')
