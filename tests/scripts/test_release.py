"""What a release says of itself is said in one place, and workflows and forms are well-formed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import systolic

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    assert f"version: {systolic.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_malicious_releases_of_lightning_are_excluded() -> None:
    named = [one for extra in PROJECT["optional-dependencies"].values() for one in extra if re.match(r"lightning\b", one)]
    assert named
    assert all("!=2.6.2" in one and "!=2.6.3" in one for one in named)


@pytest.mark.parametrize("form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_forms_ask_for_the_doctor(form: Path) -> None:
    assert "systolic doctor --json" in form.read_text()


def test_workflows_call_targets_that_there_are() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        assert set(re.findall(r"make ([\w-]+)", workflow.read_text())) <= targets, workflow.name
