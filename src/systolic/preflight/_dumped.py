"""The text of what libtpu compiled, in libtpu's own words."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any


def compile_and_dump(lowered: Any) -> tuple[Any, str]:
    """Compile for TPUs, and have libtpu write the optimized program, which takes no measurable time.

    `Compiled.as_text()` is not for libtpu's programs: libtpu may lead jaxlib. Transfers that a TPU starts before all of their
    operands are there are refused by jaxlib 0.10.2 ("async-update instruction should have 1 operands but sees 2"), with a
    stack trace on standard error, though the program never runs here.

    Args:
        lowered: a `jax.stages.Lowered` for devices of a TPU topology.

    Returns:
        The `jax.stages.Compiled`, and the text with the compiler's estimates.

    Raises:
        JaxRuntimeError: the compiler refused the program.
    """
    with tempfile.TemporaryDirectory(prefix="systolic-dump-") as directory:
        compiled = lowered.compile(compiler_options={"xla_dump_to": directory, "xla_dump_hlo_as_text": True})
        # of several dumps the last is the one that holds the estimates
        [found] = Path(directory).glob("*.after_codegen.txt")
        return compiled, found.read_text()
