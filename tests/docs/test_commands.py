"""The commands whose output the documentation shows: they print those lines, whatever the figures on another machine."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import PAGES, ROOT, is_shown_of, name_of
from docs.pages import blocks as blocks_of


def shown_outputs(page: Path) -> list[tuple[str, str]]:
    """Each command of a page with what is shown of its output."""
    found: list[tuple[str, str]] = []
    is_open = False
    for block in blocks_of(page):
        if block.command is not None:
            found.append((block.command, block.text.partition("\n")[2]))
        elif block.title == "prints" and is_open:
            command, text = found[-1]
            found[-1] = (command, text + block.text)
        is_open = block.command is not None or (is_open and not block.is_run)
    return found


COMMANDS = [
    pytest.param(page, command, text, id=f"{name_of(page)}: {command}")
    for page in PAGES
    for command, text in shown_outputs(page)
]


def test_outputs_are_those_of_a_command() -> None:
    """No block outside of the examples shows a report of preflight or plan that nothing here would run."""
    shown = {name_of(page) for page in PAGES if shown_outputs(page)}
    assert {"README.md", "docs/preflight.md", "docs/plan.md"} <= shown


@pytest.mark.parametrize(("page", "command", "text"), COMMANDS)
def test_a_command_has_its_script(page: Path, command: str, text: str) -> None:
    """In the examples, or in a block of the page that has its name for a title."""
    titles = {block.title for block in blocks_of(page)}
    for word in shlex.split(command):
        assert not word.endswith(".py") or (ROOT / word).exists() or word in titles


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("page", "command", "text"), COMMANDS)
def test_a_command_prints_what_is_shown(page: Path, command: str, text: str, tmp_path: Path) -> None:
    for block in blocks_of(page):
        if block.title.endswith(".py"):
            (tmp_path / block.title).write_text(block.text)
    program, *words = shlex.split(command)
    interpreter = {"systolic": [sys.executable, "-m", "systolic"], "python": [sys.executable]}[program]
    shutil.copytree(
        ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )  # logs stay out of it
    own = {"COLUMNS": "120", "SYSTOLIC_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*interpreter, *words], cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, timeout=1700
    )
    printed = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    assert is_shown_of(text, printed), f"shown:\n{text}\nprinted:\n{printed}"


def test_lines_are_found_in_their_order_whatever_the_figures() -> None:
    printed = "step   58.5 us  longer one\nof two\ncost 3.5e-06 USD\nend"
    assert is_shown_of("step 44.4 us longer ...\ncost 2.7e-06 USD\n", printed)
    assert not is_shown_of("cost 1 USD\nstep 44.4 us\n", printed)
    assert not is_shown_of("steps 44.4 us\n", printed)
