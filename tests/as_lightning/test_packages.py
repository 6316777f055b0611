"""Packages that train through Lightning inside themselves run unchanged under `systolic run`, with Lightning's numbers.

They are no dependencies of systolic's, not even for its development: what is not installed is skipped.
`pip install --no-deps --target DIR gluonts ...` with DIR on PYTHONPATH brings them.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("pytorch_forecasting", "pytorch_tabular", "gluonts", "neuralforecast", "chemprop", "darts")


def result(script: Path, path: Path, *before: str) -> Any:
    """The numbers that a script prints at its end."""
    path.mkdir()
    command = [sys.executable, *before, str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=path, timeout=400, check=False)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, ran.stderr[-3000:]
    return json.loads(lines[-1].removeprefix("RESULT "))


def numbers(value: Any) -> list[float]:
    """All numbers of nested lists and dicts, in order."""
    if isinstance(value, dict):
        return [number for name in sorted(value) for number in numbers(value[name])]
    return [number for one in value for number in numbers(one)] if isinstance(value, list) else [value]


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_trains_as_under_lightning(package: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    script = Path(__file__).parent / "packages" / f"{package}_script.py"
    theirs = result(script, tmp_path / "lightning")
    ours = result(script, tmp_path / "systolic", "-m", "systolic", "run")
    assert len(numbers(theirs)) >= 3
    assert numbers(ours) == pytest.approx(numbers(theirs), rel=2e-4, abs=2e-5, nan_ok=True)
