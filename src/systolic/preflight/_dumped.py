"""The text of a program that libtpu compiled and jaxlib cannot read back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any


def dumped_text(lowered: Any) -> str:
    """The optimized program as libtpu itself writes it, after one more compilation.

    libtpu may lead jaxlib: the all-reduce that tpu7x starts on its SparseCore before the operands are there is refused by
    jaxlib 0.10.2 ("async-update instruction should have 1 operands but sees 2"), which never runs the program here.

    Args:
        lowered: a `jax.stages.Lowered`.
    """
    with tempfile.TemporaryDirectory(prefix="systolic-dump-") as directory:
        lowered.compile(compiler_options={"xla_dump_to": directory, "xla_dump_hlo_as_text": True})
        # the last dump is the one that holds the estimates
        [found] = Path(directory).glob("*.after_codegen.txt")
        return found.read_text()
