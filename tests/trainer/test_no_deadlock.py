"""Runs on simulated cores finish: XLA's thread pool can starve when cores outnumber processors (design, section 4)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRIVIAL = """
import torch, systolic as L
from torch.utils.data import DataLoader, TensorDataset

class Tiny(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

trainer = L.Trainer(
    accelerator="cpu", devices=8, max_epochs=-1, max_steps=2000,
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Tiny(), DataLoader(TensorDataset(torch.randn(800, 2)), batch_size=1))
print("steps:", trainer.global_step)
"""


def run(arguments: list[str], directory: Path, seconds: float) -> str:
    """Run Python in a process of its own, with none of the variables that would help."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NPROC", "XLA_FLAGS")}
    finished = subprocess.run(
        [sys.executable, *arguments], cwd=directory, env=environment, timeout=seconds, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


def run_digits(directory: Path) -> float:
    """Train the digits, and return the accuracy in percent."""
    script = str(ROOT / "examples" / "digits.py")
    output = run([script, "--accelerator", "cpu", "--devices", "8", "--epochs", "3"], directory, seconds=180)
    (accuracy,) = re.findall(r"validation accuracy +([\d.]+)%", output)
    return float(accuracy)


# promise 10: L#18131
@pytest.mark.tables
def test_two_thousand_trivial_steps_on_eight_cores_finish(tmp_path: Path) -> None:
    assert "steps: 2000" in run(["-c", TRIVIAL], tmp_path, seconds=240)


@pytest.mark.tables
def test_the_digits_example_finishes_twice_with_one_accuracy(tmp_path: Path) -> None:
    accuracies = {run_digits(tmp_path) for _ in range(2)}
    assert len(accuracies) == 1  # the example sets its seed
    assert accuracies.pop() > 80


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_the_digits_example_finishes_every_time(number: int, tmp_path: Path) -> None:
    assert run_digits(tmp_path) > 80
