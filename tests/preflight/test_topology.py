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


HANDLERS_PUT_BACK = """
import signal, time
import jax
from systolic.preflight import parse_slice, slice_devices
before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGPROF)}
slice_devices(parse_slice("v5litepod-1"))
for number in before:
    signal.signal(number, signal.getsignal(number))
started = time.process_time()
while time.process_time() - started < 1:
    sum(range(1000))
print("alive")
"""


@pytest.mark.tables
def test_a_library_that_puts_signal_handlers_back_does_not_end_the_process() -> None:
    run = subprocess.run([sys.executable, "-c", HANDLERS_PUT_BACK], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout.strip()) == (0, "alive"), run.stderr
