"""Install the archives of dist/ into empty environments outside the repository, and train the README's first script there.

Usage: python scripts/check_dist.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_WHOLE = re.compile(r"```python\n(import torch, systolic as L\n.*?)```", re.DOTALL)


def whole_script() -> str:
    """The README's first whole script."""
    found = _WHOLE.search((ROOT / "README.md").read_text())
    assert found is not None, "the README has no script that begins with its imports"
    return found[1]


def check(archive: Path, folder: Path) -> str:
    """Install one archive in a fresh environment below `folder`, and train.

    Returns:
        What the script printed.

    Raises:
        RuntimeError: something failed; with the end of its output.
    """
    python = folder / "venv" / "bin" / "python"
    _run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    _run([str(python), "-m", "pip", "install", "--quiet", f"{archive}[examples]"], folder)
    (folder / "train.py").write_text(whole_script())
    located = _run([str(python), "-c", "import systolic as s; print(s.__file__); print(s.__path__[0])"], folder).split()
    assert folder in Path(located[0]).parents, f"the installed systolic was to be tested, not {located[0]}"
    assert (Path(located[1]) / "py.typed").is_file(), "py.typed is missing: type checkers would not look at the package"
    return _run([str(python), "train.py"], folder)


def _run(command: Sequence[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\nfailed with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def main() -> int:
    """Check every archive in dist/; 1 where there are not exactly a wheel and an sdist."""
    archives = sorted([*(ROOT / "dist").glob("*.whl"), *(ROOT / "dist").glob("*.tar.gz")])
    if len(archives) != 2:
        sys.stderr.write(f"Expected a wheel and an sdist in dist/, made by `make dist`. There: {[a.name for a in archives]}.\n")
        return 1
    for archive in archives:
        with tempfile.TemporaryDirectory(prefix="systolic-dist-") as folder:
            sys.stdout.write(f"{archive.name}\n{check(archive, Path(folder).resolve())}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
