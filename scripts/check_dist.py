"""Install the archives of dist/ into empty environments outside the repository, and train the README's first script there.

With `--python` the wheel is tried on these Pythons in place of this one, and docs/install.md gets a row for each: versions,
times and sizes. Rows of other Pythons stay as they are.

Usage: python scripts/check_dist.py [--python 3.12=/path/to/python ...]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "install.md"
_WHOLE = re.compile(r"```python\n(import torch, systolic as L\n.*?)```", re.DOTALL)
_ROW = re.compile(r"(?m)^\| (3\.\d+)\.\d+ \|.*$")
_VERSIONS = "import platform as p, torch, jax; print(p.python_version(), torch.__version__, jax.__version__)"
# folders of PyTorch and of what its builds with CUDA bring
_TORCH = re.compile(r"torch|functorch|torchgen|triton|nvidia|cuda")


@dataclass(frozen=True)
class Outcome:
    """What happened with one archive.

    Attributes:
        versions: of Python, PyTorch and JAX.
        printed: by the script.
        installing: seconds of pip.
        running: seconds of the script, imports and compilation included.
        size: bytes of the environment's packages.
        torch_size: of these, PyTorch with its CUDA libraries.
        day: when.
    """

    versions: tuple[str, ...]
    printed: str
    installing: float
    running: float
    size: int
    torch_size: int
    day: str


def whole_script() -> str:
    """The README's first whole script."""
    found = _WHOLE.search((ROOT / "README.md").read_text())
    assert found is not None, "the README has no script that begins with its imports"
    return found[1]


def check(archive: Path, interpreter: str, folder: Path) -> Outcome:
    """Install one archive in a fresh environment below `folder`, and train.

    Args:
        archive: a wheel or an sdist.
        interpreter: the Python that makes the environment.
        folder: an empty one; everything stays there.

    Raises:
        RuntimeError: something failed; with the end of its output.
    """
    python = folder / "venv" / "bin" / "python"
    _run([interpreter, "-m", "venv", str(folder / "venv")], folder)
    started = time.perf_counter()
    _run([str(python), "-m", "pip", "install", "--quiet", f"{archive}[examples]"], folder)
    installed = time.perf_counter()
    (folder / "train.py").write_text(whole_script())
    located = _run([str(python), "-c", "import systolic as s; print(s.__file__); print(s.__path__[0])"], folder).split()
    assert folder in Path(located[0]).parents, f"the installed systolic was to be tested, not {located[0]}"
    assert (Path(located[1]) / "py.typed").is_file(), "py.typed is missing: type checkers would not look at the package"
    begun = time.perf_counter()
    printed = _run([str(python), "train.py"], folder)
    ended = time.perf_counter()
    packages = Path(located[1]).parent
    return Outcome(
        versions=tuple(_run([str(python), "-c", _VERSIONS], folder).split()),
        printed=printed,
        installing=installed - started,
        running=ended - begun,
        size=_size(packages),
        torch_size=sum(_size(path) for path in packages.iterdir() if _TORCH.match(path.name)),
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
    )


def _size(path: Path) -> int:
    return sum(one.lstat().st_size for one in ([path] if path.is_file() else path.rglob("*")))


def _run(command: Sequence[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["SYSTOLIC_CACHE_DIR"] = str(folder / "cache")  # a stranger has no compiled programs yet
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\nfailed with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def row(outcome: Outcome) -> str:
    """The outcome as a line of the page's table."""
    last = outcome.printed.strip().splitlines()[-1]
    cells = [
        *outcome.versions,
        f"{outcome.installing:.0f} s",
        f"{outcome.size / 1e9:.1f} GB",
        f"{outcome.torch_size / 1e9:.1f} GB",
        f"{outcome.running:.0f} s",
        f"`{last[last.rindex('train_loss') :]}`",
        outcome.day,
    ]
    return f"| {' | '.join(cells)} |"


def with_rows(page: str, outcomes: Sequence[Outcome]) -> str:
    """The page with new rows, in the order of the Pythons; a row of a Python that was not tried stays."""
    found = list(_ROW.finditer(page))
    rows = {match[1]: match[0] for match in found}
    rows |= {outcome.versions[0].rpartition(".")[0]: row(outcome) for outcome in outcomes}
    table = "\n".join(rows[version] for version in sorted(rows, key=lambda text: int(text.split(".")[1])))
    first, last = (found[0].start(), found[-1].end()) if found else (len(page), len(page))
    return f"{page[:first]}{table}{page[last:]}" if found else f"{page}{table}\n"


def main(arguments: Sequence[str]) -> int:
    """Check every archive in dist/; 1 where there are not exactly a wheel and an sdist."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="*", default=[], help="VERSION=PATH of Pythons to try the wheel on; writes the page")
    options = parser.parse_args(arguments)
    archives = sorted([*(ROOT / "dist").glob("*.whl"), *(ROOT / "dist").glob("*.tar.gz")])
    if len(archives) != 2:
        sys.stderr.write(f"Expected a wheel and an sdist in dist/, made by `make dist`. There: {[a.name for a in archives]}.\n")
        return 1
    given = [text.partition("=")[2] for text in options.python]
    wheels = [archive for archive in archives if archive.suffix == ".whl"]
    pairs = [(wheels[0], path) for path in given] or [(archive, sys.executable) for archive in archives]
    for archive, interpreter in pairs:
        with tempfile.TemporaryDirectory(prefix="systolic-dist-") as folder:
            outcome = check(archive, interpreter, Path(folder).resolve())
        sys.stdout.write(f"{archive.name}\n{outcome.printed}{row(outcome)}\n\n")
        sys.stdout.flush()
        if given:
            PAGE.write_text(with_rows(PAGE.read_text(), [outcome]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
