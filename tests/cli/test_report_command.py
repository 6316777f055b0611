"""`systolic report DIR`: of a run of another process, which ended, or was killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from systolic.cli import main
from systolic.diagnostics import RUN_FILE, read_runs

SCRIPT = """
import sys, torch, systolic as L
from systolic.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4)
epochs = int(sys.argv[2])
logger = CSVLogger(sys.argv[1]) if sys.argv[3] == "csv" else True
L.Trainer(accelerator="cpu", devices=1, max_epochs=epochs, log_every_n_steps=1, logger=logger, default_root_dir=sys.argv[1],
          enable_progress_bar=False, enable_model_summary=False).fit(Model(), loader)
"""


def start(path: Path, epochs: int, logger: str = "csv") -> subprocess.Popen[bytes]:
    (path / "train.py").write_text(SCRIPT)
    return subprocess.Popen([sys.executable, path / "train.py", path, str(epochs), logger], env={**os.environ})


@pytest.mark.parametrize("logger", ["csv", "tensorboard"])
def test_of_a_run_that_ended(logger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(tmp_path, 2, logger).wait(120) == 0
    directory = tmp_path / "lightning_logs" / "version_0"
    assert main(["report", str(directory)]) == 0
    assert capsys.readouterr().out == f"{directory / 'report.html'}\n"
    text = (directory / "report.html").read_text()
    assert "at epoch 2, step 32." in text
    assert "<h3>loss</h3>" in text
    assert main(["report", str(directory), "-o", str(tmp_path / "other.html")]) == 0
    assert (tmp_path / "other.html").read_text() == text


def test_of_a_run_that_was_killed(tmp_path: Path) -> None:
    process = start(tmp_path, 100_000)
    directory, until = tmp_path / "lightning_logs" / "version_0", time.monotonic() + 120
    while not ((directory / RUN_FILE).exists() and read_runs(directory)[0]["global_step"] > 50):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    assert main(["report", str(directory)]) == 0
    text = (directory / "report.html").read_text()
    assert "Has not said that it ended: last heard of " in text
    assert "<h3>loss</h3>" in text
    assert "first call" in text


def test_directories_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "systolic report: " in (told := capsys.readouterr().err)
    assert "nowhere does not exist" in told
    (tmp_path / "metrics.csv").write_text("loss,step\n1.0,0\n")
    assert main(["report", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert f"{tmp_path} has no {RUN_FILE}." in told
    assert "Found there: metrics.csv." in told
    assert not (tmp_path / "report.html").exists()
