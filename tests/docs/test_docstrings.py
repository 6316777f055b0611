"""Every example of a docstring runs and gives what stands there; those of public names are on the site's reference pages."""

from __future__ import annotations

import doctest
import importlib
import types
import warnings
from pathlib import Path

import pytest
from docs.pages import ROOT, stage

SRC = ROOT / "src"
NOT_RUN = {
    # importing it is enough: a later test of this process that looks `lightning.pytorch.cli` up by its name would find ours
    "systolic.as_lightning": "other tests of the process import Lightning itself; tests/as_lightning runs such scripts",
    "systolic.loggers.comet": "comet_ml writes to the closed output when the process ends; tests/loggers runs its logger",
}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules_with_examples() -> list[str]:
    """Names of modules whose docstrings have examples."""
    files = [path for path in sorted((SRC / "systolic").rglob("*.py")) if ">>> " in path.read_text()]
    return [".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__") for path in files]


def source(name: str) -> str:
    """The text of a module."""
    path = SRC.joinpath(*name.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def examples(module: types.ModuleType) -> list[doctest.DocTest]:
    """The docstrings of a module that have examples; each has the names of the site's start page, and those of its own module."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(module, globs=stage() | vars(module)) if test.examples]


def test_no_example_is_left_out_without_a_reason() -> None:
    left_out = {name for name in modules_with_examples() if "# doctest: +SKIP" in source(name)}
    assert left_out == NOT_RUN.keys()


@pytest.mark.tables
@pytest.mark.parametrize("name", [name for name in modules_with_examples() if name not in NOT_RUN])
def test_examples_run_and_give_what_stands_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_TRAINER_ACCELERATOR", "cpu")
    for category in (UserWarning, FutureWarning):
        warnings.simplefilter("ignore", category)
    told: list[str] = []
    for test in examples(importlib.import_module(name)):
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        runner.run(test, out=told.append)
    assert not told, "".join(told)
