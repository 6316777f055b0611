"""`systolic new NAME` writes a project that trains."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from systolic.cli import main
from systolic.cli._new import FILES, class_name

SOURCE = Path(__file__).parents[2] / "src"


def test_what_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "my-flowers"]) == 0
    folder = tmp_path / "my-flowers"
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert "class MyFlowersModule(L.LightningModule):" in (folder / "module.py").read_text()
    for path in folder.glob("*.py"):
        ast.parse(path.read_text())
        assert "Project" not in path.read_text()
    assert capsys.readouterr().out.endswith("Train it: cd my-flowers && python train.py\n")


def test_what_its_files_need_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("systolic.cli._new.find_spec", lambda name: None if name == "sklearn" else find_spec(name))
    assert main(["new", "flowers"]) == 0
    assert capsys.readouterr().out.endswith("Train it: pip install scikit-learn && cd flowers && python train.py\n")


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flowers").mkdir()
    assert main(["new", "flowers"]) == 2
    assert "There is 'flowers' already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["7up", "a b", "ö!"])
def test_names_that_no_class_can_have(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", name]) == 2
    assert "No class can be named after" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_words_of_a_name() -> None:
    assert class_name("imageNet_small") == "ImageNetSmall"


@pytest.mark.tables
def test_it_trains_resumes_and_passes_its_own_test(tmp_path: Path) -> None:
    main(["new", "flowers"])

    def run(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path / "flowers", env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    train = ("train.py", "--accelerator", "cpu", "--devices", "2", "--batch-size", "32")
    assert "validation accuracy 9" in run(*train, "--epochs", "4")
    resumed = run(*train, "--epochs", "5", "--resume")
    assert "Epoch 4/4" in resumed
    assert "Epoch 3/4" not in resumed
    assert "1 passed" in run("-m", "pytest", "-p", "no:cacheprovider")
