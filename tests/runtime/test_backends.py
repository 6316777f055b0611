"""A machine without TPUs does not start libtpu, which is installed here."""

from __future__ import annotations

import subprocess
import sys

import pytest

from systolic.hardware._chips import chip_files

_SCRIPT = """
import torch, systolic as L
{line}
import sys
sys.stdout.write("libtpu" if "libtpu.so" in open("/proc/self/maps").read() else "quiet")
"""


@pytest.mark.thin(4)
@pytest.mark.skipif(bool(chip_files()), reason="this machine has TPUs")
@pytest.mark.parametrize(
    "line",
    [
        "L.Trainer(accelerator='auto', max_epochs=1)",
        "L.Trainer(accelerator='cpu', devices=8, max_epochs=1)",
        "L.jit(lambda x: x + 1)(torch.ones(2))",
    ],
)
def test_libtpu_is_not_started(line: str) -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT.format(line=line)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("quiet", "")
