"""The compiler in a process that goes on with other things."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("libtpu")

TRACE_AFTERWARDS = """
import sys
import jax
from systolic.preflight import parse_slice, slice_devices
slice_devices(parse_slice("v5litepod-1"))
jax.profiler.start_trace(sys.argv[1])
jax.numpy.ones(3).block_until_ready()
jax.profiler.stop_trace()
"""


def test_jax_can_trace_a_process_that_has_loaded_the_compiler(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRACE_AFTERWARDS, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert list(tmp_path.glob("**/*.xplane.pb"))
