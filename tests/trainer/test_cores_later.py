"""Runs on one simulated core, then on eight, then on two, in one process, as in a notebook: equal, and earlier Trainers go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

_HEAD = """
import copy, json, warnings
import torch
from torch.utils.data import DataLoader, TensorDataset
import systolic as L

warnings.simplefilter("error")
warnings.filterwarnings("ignore", "The .* does not have many workers")
rows = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
options = dict(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)
        self.inner = None

    def training_step(self, batch, batch_idx):
        loss = (self.layer(batch[0]) - 1).square().mean()
        self.log("loss", loss, on_epoch=True)
        return loss

    def predict_step(self, batch, batch_idx):
        return self.layer(batch[0])

    def on_train_epoch_end(self):
        if self.inner is not None and self.current_epoch == 0:
            self.inner(self)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)


def loader(devices):
    return DataLoader(TensorDataset(rows), 16 // devices)


def trainer(devices, **more):
    return L.Trainer(devices=devices, max_epochs=2, **options, **more)


def fitted(devices, **more):
    module, run = Module(), trainer(devices, **more)
    run.fit(module, loader(devices))
    return module, run
"""

_LATER = """
double = L.jit(lambda x: (x * 2).sum())
found, first = [float(double(rows))], None
for devices in (1, 8, 2, 16, 1):
    module, run = fitted(devices, callbacks=[L.callbacks.EMAWeightAveraging(decay=0.5)])
    loss = float(run.callback_metrics["loss_epoch"])
    predicted = torch.cat(run.predict(module, loader(devices))).sum().item()
    found.append([module.layer.weight.sum().item(), loss, predicted])
    first = first or (module, run)
first[1].fit_loop.max_epochs += 1
first[1].fit(first[0], loader(1))
found.append(float(double(rows)))
print(json.dumps([found, first[0].layer.weight.sum().item(), first[1].global_step]))
"""

_NESTED = """
def on_other_cores(module):
    fitted(4)

alone, _ = fitted(1)
outer, run = Module(), trainer(1)
outer.inner = on_other_cores
run.fit(outer, loader(1))
print(json.dumps([alone.layer.weight.sum().item(), outer.layer.weight.sum().item()]))
"""

_SAME = """
outer, run = Module(), trainer(1)
outer.inner = lambda module: trainer(4).predict(module, loader(4))
try:
    run.fit(outer, loader(1))
except L.MisconfigurationException as error:
    print(json.dumps(str(error)))
"""


def _run(script: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if name not in ("NPROC", "XLA_FLAGS")}
    done = subprocess.run([sys.executable, "-c", _HEAD + script], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_more_cores_than_the_first_run_had() -> None:
    (double, *runs, again), weight, steps = _run(_LATER)
    assert double == again
    for run in runs[1:]:
        assert run == pytest.approx(runs[0], rel=2e-5)
    assert weight != pytest.approx(runs[0][0], rel=1e-3)  # it went on
    assert steps == 12


def test_a_run_goes_on_beside_an_inner_one_on_more_cores() -> None:
    alone, outer = _run(_NESTED)
    assert outer == alone


def test_parameters_of_a_run_are_refused_to_one_on_other_cores() -> None:
    assert "layer.weight lies on cpu:0, and this run uses cpu:0, cpu:1, cpu:2, cpu:3" in _run(_SAME)
