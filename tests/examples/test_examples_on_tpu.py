"""Every example is compiled by the real TPU compiler, as its user would ask for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("libtpu")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "text", "resnet"])
def test_preflight(name: str) -> None:
    command = [sys.executable, "-m", "systolic", "preflight", str(EXAMPLES / f"{name}.py"), "--slice", "v5litepod-8", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert run.returncode == 0, run.stderr
    [report] = json.loads(run.stdout)
    assert report["fits"]
    assert "f64" not in report["dtypes"]
    assert report["time"]["step"] > 0
