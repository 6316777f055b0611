"""Install systolic with other versions of PyTorch and JAX, run real tests there, and write docs/versions.md.

Each combination gets an environment of its own in a temporary folder (5 GB while it lasts where pip brings PyTorch's CUDA
build; set PIP_EXTRA_INDEX_URL to an index with CPU builds to avoid that). Takes about five minutes a combination.

`--newest` tries the newest releases that there are, beyond what pyproject.toml allows: where it fails, a release has come that
breaks systolic; where it passes with a release that is not allowed yet, the range can be widened.

Usage: python scripts/check_versions.py [--newest | --only 3.11:2.11:0.10.0 ...] [--python 3.13=/path/to/python ...]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "versions.md"
TESTS = ["tests/compiler/test_differential.py", "tests/trainer/test_program.py"]
CHOSEN = "mlp or cnn_batch_norm or gpt or test_program"
TOOLS = ["pytest", "pytest-timeout", "transformers"]
MARKED = "(tables or not slow) and not gpu"  # `make test` leaves out most rows of large tables
_PASSED = re.compile(r"(\d+) passed")
_ACCURACY = re.compile(r"validation accuracy\s+([\d.]+)%")
_VERSIONS = "import platform as p, torch, jax, numpy; print(p.python_version(), *(m.__version__ for m in (torch, jax, numpy)))"


@dataclass(frozen=True)
class Combination:
    """Versions to install; each of torch and jax may be the beginning of one ("2.12"), then the newest such is taken."""

    python: str
    torch: str
    jax: str

    @property
    def key(self) -> str:
        """How `--only` names it."""
        return f"{self.python}:{self.torch}:{self.jax}"


# The oldest of both that pyproject.toml allows, what lies between, and the newest of both that a Python can have: JAX 0.11 and
# later need Python 3.12.
COMBINATIONS = [
    Combination("3.11", "2.11", "0.10.0"),
    Combination("3.11", "2.15", "0.10"),
    Combination("3.12", "2.14", "0.11"),
    Combination("3.13", "2.15", "0.12"),
    Combination("3.14", "2.15", "0.12"),
]
NEWEST = Combination("3.13", "newest", "newest")


@dataclass(frozen=True)
class Outcome:
    """What happened with one combination; versions are those that were installed."""

    versions: dict[str, str]
    accuracy: float
    passed: int
    seconds: float
    day: str


def check(combination: Combination, python: str, folder: Path) -> Outcome:
    """Install one combination in a fresh environment below `folder`, train the digits example and run the tests.

    Args:
        combination: what to install.
        python: the interpreter that makes the environment.
        folder: an empty folder; the environment stays there.

    Raises:
        RuntimeError: something failed; with the end of its output.
    """
    started = time.perf_counter()
    environment = folder / "venv"
    own = environment / "bin" / "python"
    _run([python, "-m", "venv", str(environment)], folder)
    for wanted in _installations(combination):
        _run([str(own), "-m", "pip", "install", "--quiet", *wanted], folder)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "examples" / "digits.py", folder)
    digits = _run([str(own), "digits.py", "--accelerator", "cpu", "--devices", "8", "--epochs", "5"], folder)
    tests = _run([str(own), "-m", "pytest", "-p", "no:cacheprovider", *TESTS, "-k", CHOSEN, "-m", MARKED], folder)
    found = dict(zip(("python", "torch", "jax", "numpy"), _run([str(own), "-c", _VERSIONS], folder).split(), strict=True))
    where = Path(_run([str(own), "-c", "import systolic; print(systolic.__file__)"], folder).strip())
    assert environment in where.parents, f"the installed systolic was to be tested, not {where}"
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return Outcome(found, _number(_ACCURACY, digits), int(_number(_PASSED, tests)), time.perf_counter() - started, day)


def _installations(combination: Combination) -> list[list[str]]:
    """What pip is given, call by call."""
    if combination == NEWEST:
        return [[*without_upper_bounds(), *TOOLS], ["--no-deps", str(ROOT)]]
    versions = [f"torch=={_pattern(combination.torch)}", f"jax=={_pattern(combination.jax)}"]
    return [[f"{ROOT}[examples]", *versions, *TOOLS]]


def without_upper_bounds() -> list[str]:
    """What systolic and its examples need, whatever releases have come since."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(text) for text in [*project["dependencies"], *project["optional-dependencies"]["examples"]]]
    for requirement in found:
        lower = [str(one) for one in requirement.specifier if one.operator not in ("<", "<=")]
        requirement.specifier = SpecifierSet(",".join(lower))
    return [str(requirement) for requirement in found]


def _pattern(version: str) -> str:
    return version if version.count(".") > 1 else f"{version}.*"


def _run(command: Sequence[str], folder: Path) -> str:
    hidden = {"PYTHONPATH", "VIRTUAL_ENV", "SYSTOLIC_CACHE_DIR"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["SYSTOLIC_CACHE_DIR"] = str(folder / "cache")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise RuntimeError(f"{' '.join(command)}\nfailed with {done.returncode}:\n{end}")
    return done.stdout


def _number(pattern: re.Pattern[str], text: str) -> float:
    found = pattern.search(text)
    if found is None:
        raise RuntimeError(f"{pattern.pattern!r} is not in the output:\n{text[-2000:]}")
    return float(found[1])


def page(outcomes: Sequence[Outcome | None], combinations: Sequence[Combination]) -> str:
    """The text of docs/versions.md; None stands for a combination that failed."""
    head = """# Versions

systolic is pure Python and pins no version exactly: any PyTorch and any JAX of the ranges in `pyproject.toml` may be combined.
`make test-versions` installs these combinations in fresh environments, trains `examples/digits.py` for 5 epochs on 8 simulated
cores, and runs tests that compare compiled training with eager PyTorch (MLP, CNN with BatchNorm, GPT, Hugging Face's GPT-2, and
all of `tests/trainer/test_program.py`). This page is what it wrote.

| Python | PyTorch | JAX | NumPy | digits, accuracy | tests | when |
|---|---|---|---|---|---|---|
"""
    rows = []
    for combination, outcome in zip(combinations, outcomes, strict=True):
        if outcome is None:
            rows.append(f"| {combination.python} | {combination.torch} | {combination.jax} | | **failed** | **failed** | |")
            continue
        versions = " | ".join(outcome.versions[name] for name in ("python", "torch", "jax", "numpy"))
        rows.append(f"| {versions} | {outcome.accuracy:.1f}% | {outcome.passed} passed | {outcome.day} |")
    return head + "\n".join(rows) + "\n"


def interpreter(version: str, given: dict[str, str]) -> str:
    """The Python of a version: what `--python` says, this one, or the one of that name on the PATH.

    Raises:
        RuntimeError: there is none.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = given.get(version) or (sys.executable if version == own else shutil.which(f"python{version}"))
    if found is None:
        raise RuntimeError(f"There is no Python {version}. Install it, or pass --python {version}=/path/to/python.")
    return found


def main(arguments: Sequence[str]) -> int:
    """Check all combinations and write the page; with `--only` or `--newest`, print and write nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="python:torch:jax of these combinations; prints, and writes nothing")
    parser.add_argument("--newest", action="store_true", help="the newest releases, allowed or not; prints, and writes nothing")
    parser.add_argument("--python", nargs="*", default=[], help="VERSION=PATH of interpreters that are not on the PATH")
    options = parser.parse_args(arguments)
    given = dict(text.split("=", 1) for text in options.python)
    chosen = [NEWEST] if options.newest else [c for c in COMBINATIONS if options.only is None or c.key in options.only]
    outcomes: list[Outcome | None] = []
    for combination in chosen:
        with tempfile.TemporaryDirectory(prefix="systolic-versions-") as folder:
            try:
                outcome = check(combination, interpreter(combination.python, given), Path(folder))
                sys.stdout.write(f"{combination.key}: {outcome}\n")
                outcomes.append(outcome)
            except RuntimeError as error:
                sys.stdout.write(f"{combination.key}: {error}\n")
                outcomes.append(None)
    if options.only is None and not options.newest:
        PAGE.write_text(page(outcomes, chosen))
    return int(None in outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
