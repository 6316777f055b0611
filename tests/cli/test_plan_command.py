"""`systolic plan`, on a script that knows nothing of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from systolic.cli import main

pytest.importorskip("libtpu")

SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset
import systolic as L

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)

    def training_step(self, batch, batch_idx):
        return (self.layer(batch[0]) - batch[0]).square().mean()

    def predict_step(self, batch, batch_idx):
        return self.layer(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

print("chatter of the script")
trainer = L.Trainer(accelerator="tpu", devices=4, max_epochs=3, logger=False)
getattr(trainer, sys.argv[1] if sys.argv[1:] else "fit")(Net(), DataLoader(TensorDataset(torch.rand(64, 16)), batch_size=4))
open("trained", "w").close()
"""
WORDS = ["--slices", "v5litepod-1..v5litepod-4", "--global-batch", "8", "--remat", "none"]


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def test_a_plan_for_people_and_for_programs(
    script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    before = sys.argv, sys.path[:]
    assert main(["plan", script, *WORDS, "--json", str(tmp_path / "plan.json"), "--compile", "30"]) == 0
    assert (sys.argv, sys.path) == before
    assert not Path("trained").exists()
    printed, errors = capsys.readouterr()
    assert errors == "chatter of the script\n"
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 80
    plan = json.loads((tmp_path / "plan.json").read_text())
    # 3 epochs of 64 samples by 8
    assert (plan["model"], plan["global_batch"], plan["length"], plan["succeeds"]) == ("Net", 8, "max_epochs=3", True)
    cheapest, fastest = plan["choices"]["cheapest"], plan["choices"]["fastest"]
    for choice in (cheapest, fastest):
        assert choice["source"] == "compiled"
        assert choice["updates"] == 24
        assert choice["cost"] == pytest.approx(choice["seconds"] / 3600 * choice["price_per_hour"])
        assert choice["rivals"] == 0
    # one core is enough for so little, and costs a quarter
    assert (cheapest["slice"], cheapest["batch_size"], cheapest["accumulate_grad_batches"]) == ("v5litepod-1", 8, 1)
    assert 'Trainer(accelerator="tpu", devices=1, strategy="ddp",' in printed
    assert 'remat="none", accumulate_grad_batches=1)' in printed
    assert "DataLoader(..., batch_size=8)" in printed
    assert plan["space"] == 4 + 2 * 2
    assert {row["slice"] for row in plan["alternatives"]} == {"v5litepod-1", "v5litepod-4"}
    for row in plan["alternatives"]:
        cores = {"v5litepod-1": 1, "v5litepod-4": 4}[row["slice"]]
        assert row["batch_size"] * row["accumulate_grad_batches"] * cores == 8


def test_terms_that_nothing_keeps_are_told(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--slices", "v5litepod-1", "--global-batch", "4", "--remat", "none", "--steps", "1000000000000", "--compile", "1"]
    assert main(["plan", script, *words, "--deadline", "1h"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "NOTHING within 60.0 min; what comes closest: v5litepod-1" in printed
    assert "too long: allow" in printed
    assert main(["plan", script, *words, "--budget", "2", "--price", "0.5"]) == 1
    assert "too much: allow" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--slices", "v5litepod-8"], "--slices and --global-batch are needed"),
        ([*WORDS, "--json", "nowhere/plan.json"], "there is no folder 'nowhere'"),
        ([*WORDS, "--deadline", "soon"], "Invalid value for --deadline"),
        ([*WORDS, "--budget", "1e3"], "Invalid value for --budget"),
        ([*WORDS, "--budget", "5", "--deadline", "1h"], "exclude each other"),
        ([*WORDS, "--strategies", "fspd"], "Did you mean 'fsdp'"),
        ([*WORDS, "--remat", "some"], "Invalid value for --remat"),
        ([*WORDS, "--compile", "0"], "Invalid value for --compile. Expected an integer >= 1"),
        ([*WORDS, "--steps", "-5"], "Invalid value for --steps"),
        ([*WORDS, "--global-batch", "7x"], "Invalid value for --global-batch"),
        (["--slices", "v5litepod-8", "--global-batch", "12"], "divides over the cores of none of the slices"),
        (["--slices", "v5litepod-9", "--global-batch", "8"], "Did you mean 'v5litepod-8'"),
        (["--slices", "v3-8", "--global-batch", "8", "--budget", "5"], "--budget needs prices"),
        ([*WORDS, "predict"], "A plan is about training"),
    ],
)
def test_mistakes_are_one_line(script: str, words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", script, *words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("systolic plan:")]
    assert len(lines) == 1
    assert text in lines[0]


def test_a_script_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "trian.py", *WORDS]) == 2
    assert "There is no script 'trian.py'" in capsys.readouterr().err
