"""`systolic preflight` as a process, on scripts that know nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from systolic.cli import main

pytest.importorskip("libtpu")

SCRIPT = """
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset
import systolic as L
from modules import Net

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--accelerator", default="tpu")
    parser.add_argument("--stage", default="fit")
    parser.add_argument("--batch-size", type=int, default=4)
    given = parser.parse_args()
    print("chatter of the script")
    trainer = L.Trainer(accelerator=given.accelerator, devices=8, max_epochs=1)
    loader = DataLoader(TensorDataset(torch.rand(64, given.width), torch.rand(64, 1)), batch_size=given.batch_size)
    try:
        getattr(trainer, given.stage)(Net(given.width), loader)
    except Exception:
        print("handlers of the script do not see the end")
    open("trained", "w").close()
"""
MODULES = """
import torch
import systolic as L

class Net(L.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, 1)

    def training_step(self, batch, batch_idx):
        return (self.layer(batch[0]) - batch[1]).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("loss", (self.layer(batch[0]) - batch[1]).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""
COMMAND = "import sys; from systolic.cli import main; sys.exit(main())"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "modules.py").write_text(MODULES)
    path = folder / "train.py"
    path.write_text(SCRIPT)
    return path


def preflight(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", COMMAND, "preflight", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )


@pytest.mark.tables
def test_a_script_for_a_tpu_is_compiled_instead_of_run(script: Path) -> None:
    run = preflight(str(script), "--slice", "v5litepod-8", "--json", "--width", "32")
    assert run.returncode == 0, run.stderr
    [report] = json.loads(run.stdout)
    assert report["fits"]
    assert (report["parameters"], report["batch"]["total"]) == (33, 32)
    # the script's own words, and nothing of libtpu's
    assert run.stderr == "chatter of the script\n"
    assert not Path("trained").exists()
    assert sorted(path.name for path in script.parent.iterdir() if path.suffix == ".py") == ["modules.py", "train.py"]
    assert [path.name for path in Path().iterdir()] == ["project"], "nothing is written where the script was started"


@pytest.mark.tables
def test_options_of_preflight_and_of_the_script(script: Path) -> None:
    slices = ["--slice", "v4-8", "--slice", "v5litepod-1"]
    run = preflight(str(script), *slices, "--batch-size", "16", "--stage", "validate", "--json", "--", "--batch-size", "2")
    assert run.returncode == 0, run.stderr
    reports = json.loads(run.stdout)
    assert [(r["slice"]["name"], r["stage"], r["batch"]["total"]) for r in reports] == [
        ("v4-8", "validation", 64),
        ("v5litepod-1", "validation", 16),
    ]


def test_a_report_for_people(script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    before = sys.argv, sys.path[:]
    assert main(["preflight", str(script), "--slice", "v5litepod-8", "--accelerator", "cpu"]) == 0
    assert (sys.argv, sys.path) == before
    printed = capsys.readouterr().out
    assert "Net, training step, 32-true, 4 samples per core, on v5litepod-8: fits" in printed
    assert "HBM per core" in printed


def test_a_sweep_is_a_table_and_a_page(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    words = ["--slice", "v5litepod-1", "--sweep", "slice=v5litepod-8", "--sweep", "batch_size=4..16", "--html", str(page)]
    assert main(["preflight", str(script), *words]) == 0
    rows = [line.split()[:4] for line in capsys.readouterr().out.splitlines() if line.strip().startswith("v5litepod")]
    assert rows == [
        ["v5litepod-1", "4", "4", "yes"], ["v5litepod-1", "8", "8", "yes"], ["v5litepod-1", "16", "16", "yes"],
        ["v5litepod-8", "4", "32", "yes"], ["v5litepod-8", "8", "64", "yes"], ["v5litepod-8", "16", "128", "yes"],
    ]  # fmt: skip
    assert page.read_text().count("<h2>Roofline</h2>") == 6


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "Say for which slice"),
        (["--slice", "v5litepod-8", "--html", "nowhere/page.html"], "there is no folder 'nowhere'"),
        (["--slice", "v4-8", "--batch-size", "8", "--sweep", "batch_size=8..16"], "exclude each other"),
        (["--slice", "v5litepod-9"], "Did you mean 'v5litepod-8'"),
        (["--slice", "v5litepod-8", "--stage", "__init__"], "ended without calling fit"),
    ],
)
def test_mistakes_are_one_line(script: Path, words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", str(script), *words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("systolic preflight:")]
    assert len(lines) == 1
    assert text in lines[0]


def test_a_script_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "trian.py", "--slice", "v5litepod-8"]) == 2
    assert "There is no script 'trian.py'" in capsys.readouterr().err


@pytest.mark.tables
def test_without_libtpu_one_line_says_how_to_install_it(script: Path, tmp_path: Path) -> None:
    # everything that is installed, but libtpu
    installed = Path(next(p for p in sys.path if p.endswith("site-packages")))
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in installed.iterdir():
        if not path.name.startswith("libtpu"):
            (packages / path.name).symlink_to(path)
    source = Path(__file__).parents[2] / "src"
    run = subprocess.run(
        [sys.executable, "-S", "-c", COMMAND, "preflight", str(script), "--slice", "v5litepod-8"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": f"{source}:{packages}"},
    )
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].endswith('Install it with: pip install "systolic[tpu]"')
    assert "Traceback" not in run.stderr
