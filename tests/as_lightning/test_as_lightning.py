"""A script that imports Lightning runs with systolic, unchanged; with Lightning installed and without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import argparse

import torch
import {package} as {name}
from {pytorch}.callbacks import Callback, EarlyStopping, ModelCheckpoint
from {pytorch}.callbacks.early_stopping import EarlyStopping as Same
from {pytorch}.loggers import CSVLogger
from {pytorch}.utilities.rank_zero import rank_zero_only
from {pytorch}.utilities.types import STEP_OUTPUT
from {pytorch}.utilities.exceptions import MisconfigurationException
from {pytorch} import Trainer, seed_everything

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
epochs = parser.parse_args().epochs
seed_everything(1)


class Model({name}.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx) -> STEP_OUTPUT:
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


trainer = Trainer(
    accelerator="cpu", devices=1, max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, callbacks=[],
)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=4))
assert Same is EarlyStopping and issubclass(ModelCheckpoint, Callback)
print(type(trainer).__module__, trainer.global_step, {name}.__version__[0], {name}.__name__)
"""


def ran(tmp_path: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script run by `systolic run`."""
    script = tmp_path / "train.py"
    script.write_text(text)
    command = [sys.executable, "-m", "systolic", "run", str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)


@pytest.mark.parametrize(
    ("package", "name", "pytorch"),
    [
        ("lightning", "L", "lightning.pytorch"),
        pytest.param("pytorch_lightning", "pl", "pytorch_lightning", marks=pytest.mark.tables),
    ],
)
def test_a_script_runs_unchanged(tmp_path: Path, package: str, name: str, pytorch: str) -> None:
    done = ran(tmp_path, SCRIPT.format(package=package, name=name, pytorch=pytorch), "--epochs", "2")
    assert done.stdout.split() == ["systolic.trainer._trainer", "4", "2", package], done.stderr


@pytest.mark.tables
def test_what_systolic_lacks_is_lightnings_own_and_a_guest(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    done = ran(
        tmp_path,
        "import lightning as L\n"
        "from lightning.pytorch.callbacks import Callback\n"
        "from lightning.pytorch.strategies import ParallelStrategy\n"
        "from lightning.pytorch.demos.boring_classes import BoringModel\n"
        "trainer = L.Trainer(accelerator='cpu', devices=1, max_epochs=1, limit_train_batches=2, logger=False,\n"
        "    limit_val_batches=0, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)\n"
        "trainer.fit(BoringModel())\n"
        "print(ParallelStrategy.__module__, Callback.__module__, type(trainer).__module__, trainer.global_step)\n",
    )
    found = done.stdout.split()
    assert found == [
        "lightning.pytorch.strategies.parallel", "systolic.callbacks.callback", "systolic.trainer._trainer", "2",
    ], done.stderr  # fmt: skip


def test_without_lightning_what_is_missing_is_named() -> None:
    text = (
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('lightning', 'pytorch_lightning'):\n"
        "            raise ModuleNotFoundError('hidden', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "import systolic.as_lightning\n"
        "import lightning as L\n"
        "import lightning.pytorch.callbacks as callbacks\n"
        "import lightning.pytorch.loggers as loggers\n"
        "print(L.Trainer.__module__, callbacks.ModelCheckpoint.__module__)\n"
        "try:\n"
        "    loggers.LitLogger\n"
        "except AttributeError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    first, second = done.stdout.splitlines()
    assert first == "systolic.trainer._trainer systolic.callbacks.model_checkpoint", done.stderr
    assert "no `LitLogger` of `lightning.pytorch.loggers`" in second


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "systolic", "run", str(tmp_path / "nothing.py")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "There is no file" in done.stderr


def test_systolic_pytorch_is_systolic() -> None:
    import systolic.pytorch.callbacks as callbacks

    import systolic as L

    assert L.pytorch.Trainer is L.Trainer
    assert callbacks is L.callbacks


CLI_SCRIPT = """
import torch
import lightning.pytorch as pl
from lightning.pytorch.cli import LightningCLI


class Model(pl.LightningModule):
    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=4)


cli = LightningCLI(Model, save_config_callback=None)
print(type(cli).__module__, cli.trainer.global_step, type(cli.trainer.callbacks[0]).__module__)
"""

CLI_CONFIG = """
trainer:
  accelerator: cpu
  devices: 1
  max_epochs: 1
  logger: false
  enable_progress_bar: false
  enable_checkpointing: false
  callbacks:
    class_path: lightning.pytorch.callbacks.EarlyStopping
    init_args:
      monitor: loss
      strict: false
optimizer:
  class_path: torch.optim.SGD
  init_args:
    lr: 0.1
"""


@pytest.mark.tables
def test_a_command_line_reads_configurations_that_name_lightnings_classes(tmp_path: Path) -> None:
    pytest.importorskip("jsonargparse")
    (tmp_path / "config.yaml").write_text(CLI_CONFIG)
    done = ran(tmp_path, CLI_SCRIPT, "fit", "--config", "config.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "systolic.pytorch.cli._lightning_cli 2 systolic.callbacks.early_stopping"


PATCHES = """
import sys
if "--hidden" in sys.argv:
    class Hidden:
        def find_spec(self, name, path=None, target=None):
            if name.partition('.')[0] in ('lightning', 'pytorch_lightning'):
                raise ModuleNotFoundError('hidden', name=name)
    sys.meta_path.insert(0, Hidden())
import systolic.as_lightning
from datetime import timedelta
from unittest import mock
import lightning.pytorch as pl
import lightning.pytorch.callbacks.timer as theirs
import systolic.callbacks.progress
from lightning.pytorch.callbacks.progress import tqdm_progress as bars
from systolic.callbacks import timer as ours

clock, progress = ours.time, systolic.callbacks.progress
with mock.patch("lightning.pytorch.callbacks.timer.time") as faked:
    faked.monotonic.return_value = 7.0
    timer = pl.callbacks.Timer(timedelta(seconds=10))
    timer.on_train_start(None, None)
    faked.monotonic.return_value = 10.0
    print(timer.time_remaining(), theirs.time is faked)
print(ours.time is clock, theirs.time is clock)

class Mine(bars.Tqdm):
    made = 0
    def __init__(self, *args, **kwargs):
        Mine.made += 1
        super().__init__(*args, **kwargs)

kept, bars.Tqdm = bars.Tqdm, Mine
bar = pl.callbacks.TQDMProgressBar()
bar.init_train_tqdm()
bars.Tqdm = kept
bar.init_train_tqdm()
print(Mine.made, pl.callbacks.progress is not progress, systolic.callbacks.progress is progress)
pl.callbacks.mine = 3
print(pl.callbacks.mine, hasattr(systolic.callbacks, "mine"))
"""


@pytest.mark.parametrize("hidden", [False, True])
def test_what_is_set_on_lightnings_modules_is_set_where_it_is_used(hidden: bool) -> None:
    command = [sys.executable, "-c", PATCHES, *(["--hidden"] if hidden else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["7.0 True", "True True"], done.stderr
    assert lines[-2:] == ["1 True True", "3 False"], done.stderr
