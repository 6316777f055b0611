"""systolic works with other versions of PyTorch and JAX than those that are installed here."""

from __future__ import annotations

import sys
import tempfile
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import check_versions  # noqa: E402
from check_versions import COMBINATIONS, Combination, Outcome  # noqa: E402

DEPENDENCIES = {
    requirement.name: requirement.specifier
    for requirement in map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
}


# promise 20: L#20419, X#8626
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_another_torch_trains_in_a_fresh_environment() -> None:
    """The oldest that is not the one here, installed with pip; takes minutes and needs a package registry."""
    other = next(combination for combination in COMBINATIONS if not version("torch").startswith(combination.torch))
    with tempfile.TemporaryDirectory() as folder:  # pytest would keep 5 GB
        outcome = check_versions.check(other, check_versions.interpreter(other.python, {}), Path(folder))
    assert outcome.versions["torch"].startswith(other.torch)
    assert outcome.versions["jax"].startswith(other.jax)
    assert outcome.accuracy > 80
    assert outcome.passed >= 20


def test_the_page_has_every_combination_and_none_failed() -> None:
    text = (ROOT / "docs" / "versions.md").read_text()
    rows = [line for line in text.splitlines() if "passed |" in line]
    assert len(rows) == len(COMBINATIONS)
    for row, combination in zip(rows, COMBINATIONS, strict=True):
        python, torch, jax = (cell.strip() for cell in row.split("|")[1:4])
        assert python.startswith(combination.python)
        assert torch.startswith(combination.torch)
        assert jax.startswith(combination.jax)


def test_the_combinations_are_the_ends_of_the_ranges() -> None:
    """Where a new range is written, its versions are to be tried."""
    for name in ("torch", "jax"):
        tried = {getattr(combination, name) for combination in COMBINATIONS}
        bounds = {spec.operator: spec.version for spec in DEPENDENCIES[name]}
        assert any(one.startswith(bounds[">="]) for one in tried)
        assert all(DEPENDENCIES[name].contains(one) for one in tried)
        major, minor = map(int, bounds["<"].split("."))
        assert any(one.startswith(f"{major}.{minor - 1}") for one in tried), f"the newest {name} before {bounds['<']}"


def test_the_newest_releases_are_tried_whatever_is_allowed() -> None:
    wanted, systolic = check_versions._installations(check_versions.NEWEST)
    free = {requirement.name: requirement.specifier for requirement in map(Requirement, wanted)}
    assert free.keys() >= DEPENDENCIES.keys()
    assert all(free[name].contains("99.0") for name in ("torch", "jax"))
    assert systolic == ["--no-deps", str(ROOT)], "its own ranges would take them back"


def test_the_page_tells_of_failures() -> None:
    combinations = [Combination("3.11", "2.11", "0.10.0"), Combination("3.12", "2.12", "0.11")]
    versions = {"python": "3.11.7", "torch": "2.11.0", "jax": "0.10.0", "numpy": "2.0"}
    text = check_versions.page([Outcome(versions, 91.25, 25, 300.0, "2026-11-21"), None], combinations)
    assert "| 3.11.7 | 2.11.0 | 0.10.0 | 2.0 | 91.2% | 25 passed | 2026-11-21 |" in text
    assert "| 3.12 | 2.12 | 0.11 | | **failed** | **failed** | |" in text


def test_a_failure_shows_what_was_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"failed with 3:\nwhy it failed"):
        check_versions._run([sys.executable, "-c", "print('why it failed'); raise SystemExit(3)"], tmp_path)
    with pytest.raises(RuntimeError, match="There is no Python 9.9"):
        check_versions.interpreter("9.9", {})
