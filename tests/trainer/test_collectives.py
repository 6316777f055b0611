"""`all_gather`, `reduce`, `broadcast`: any structure, every reduction, and the numbers of Lightning."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from trainer.runs import SILENT, Line, batches, trainer

import systolic as L
from systolic.exceptions import MisconfigurationException


@dataclass
class Pair:
    left: torch.Tensor
    name: str


class Named(NamedTuple):
    x: torch.Tensor
    rest: Any


def everything(x: torch.Tensor) -> Any:
    """Something with tensors, numbers, arrays and other objects in all kinds of containers."""
    return {
        "list": [x, {"deep": (x.sum(), 3, 2.5, True)}],
        "pair": Pair(x * 2, "a"),
        "named": Named(x + 1, [None, "text"]),
        "array": np.arange(3),
    }


class Asks(Line):
    """Keeps what `question` gives inside of a step."""

    def __init__(self, question: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.__dict__["question"] = question
        self.__dict__["answers"] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        answer = self.question(self, batch["x"])
        self.answers.append(answer)
        return super().training_step(batch, batch_idx)


def shapes(answer: Any) -> Any:
    if isinstance(answer, torch.Tensor):
        return tuple(answer.shape), answer.dtype
    if isinstance(answer, dict):
        return {k: shapes(v) for k, v in answer.items()}
    if isinstance(answer, tuple | list):
        return [shapes(v) for v in answer]
    return shapes(vars(answer)) if isinstance(answer, Pair) else answer


# defect 14
def test_all_gather_of_anything_gives_what_lightning_gives_on_one_device() -> None:
    class Reference(lightning.LightningModule):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.answer = self.all_gather(everything(batch["x"]))

        def configure_optimizers(self) -> None:
            return None

    reference = Reference()
    data = torch.utils.data.DataLoader(batches(1).batches, batch_size=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning.Trainer(**SILENT, devices=1, max_epochs=1).fit(reference, data)
    ours = Asks(lambda module, x: module.all_gather(everything(x)))
    trainer(1).fit(ours, batches(1))
    assert shapes(ours.answers[-1]) == shapes(reference.answer)
    assert type(ours.answers[-1]["named"]) is Named


# defect 14
@pytest.mark.parametrize("devices", [1, 8])
def test_gathered_values(devices: int) -> None:
    """With several cores there is an axis over processes, as scripts for Lightning expect; it has one entry."""

    def question(module: Any, x: torch.Tensor) -> Any:
        gathered = module.all_gather({"x": x, "batch_idx": 5, "total": x.sum()})
        module.log("mean", gathered["x"].mean())
        module.log("total", gathered["total"].sum())
        module.log("rows", gathered["x"].reshape(-1, 4).sum(0)[2])
        module.log("number", gathered["batch_idx"].sum())
        assert gathered["x"].shape == (8, 4) if devices == 1 else (1, 8, 4)
        return gathered

    run = trainer(devices)
    data = batches(1)
    run.fit(Asks(question), data)
    x = data.batches[0]["x"]
    found = {name: float(value) for name, value in run.callback_metrics.items()}
    expected = {"mean": float(x.mean()), "total": float(x.sum()), "rows": float(x.sum(0)[2]), "number": 5.0}
    assert found == pytest.approx(expected, abs=1e-5)


def test_numbers_that_vary_stay_variable() -> None:
    class Counts(Line):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.log("index", self.all_gather(batch_idx).float().mean(), on_step=False, on_epoch=True)
            return super().training_step(batch, batch_idx)

    run = trainer(2)
    run.fit(Counts(), batches(4))
    assert float(run.callback_metrics["index"]) == 1.5
    assert len(run.compiles) == 1


# defect 14
@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("op", ["sum", "mean", "avg", "min", "max", "product", "band", "bor", "bxor", "SUM", None])
def test_every_reduction_of_a_global_value_is_the_value(op: str | None, devices: int) -> None:
    run = trainer(devices)
    value = {"a": [torch.arange(3)], "b": 2}
    assert run.strategy.reduce(value, reduce_op=op) is value
    if op not in (None, "mean"):
        enumerated = getattr(torch.distributed.ReduceOp, str(op).upper())
        assert run.strategy.reduce(value, reduce_op=enumerated) is value


def test_reductions_and_objects_in_a_compiled_step() -> None:
    class Anything:
        pass

    anything = Anything()

    def question(module: Any, x: torch.Tensor) -> None:
        strategy = module.trainer.strategy
        module.log("positive", strategy.reduce((x > 0).sum(), reduce_op="sum").float())
        assert strategy.broadcast(anything, src=3) is anything
        assert strategy.reduce_boolean_decision(False) is False
        strategy.barrier("here")

    run = trainer(8)
    data = batches(1)
    run.fit(Asks(question), data)
    assert float(run.callback_metrics["positive"]) == float((data.batches[0]["x"] > 0).sum())
    assert (run.strategy.world_size, run.strategy.global_rank, run.local_rank, run.node_rank) == (8, 0, 0, 0)
    assert run.strategy.is_global_zero
    assert run.strategy.local_rank == 0
    assert run.strategy.root_device == torch.device("cpu")


def test_what_does_not_exist_is_refused() -> None:
    strategy = trainer(2).strategy
    with pytest.raises(MisconfigurationException, match="'sum', 'mean', .* Received: 'meen'. Did you mean 'mean'"):
        strategy.reduce(torch.ones(1), reduce_op="meen")
    for call in (strategy.reduce, strategy.all_gather):
        with pytest.raises(MisconfigurationException, match="`group`. Expected None: one process drives all cores"):
            call(torch.ones(1), group="half")


SCRIPT = '''
"""A contrastive loss over the samples of all devices, written for Lightning on several processes."""
import sys
import torch
import torch.nn.functional as F
from torch import nn


def make(L, sync_grads):
    class Contrastive(L.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5))
            self.totals = []

        def training_step(self, batch, batch_idx):
            left, right = self.net(batch), self.net(batch.flip(1))
            keys = self.all_gather(right, sync_grads=sync_grads)
            if self.trainer.world_size > 1:
                keys = keys.flatten(0, 1)
            labels = torch.arange(len(left)) + self.global_rank * len(left)
            counts = self.all_gather({"per_column": (batch > 0).sum(0)})["per_column"]
            self.log("positive", counts.reshape(-1, 6).sum(0).float().max(), sync_dist=True)
            return F.cross_entropy(left @ keys.T, labels)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.5)

    return Contrastive()


def data():
    return torch.randn(32, 6, generator=torch.Generator().manual_seed(1))


if __name__ == "__main__":
    import lightning as L

    module = make(L, sys.argv[1] == "True")
    trainer = L.Trainer(accelerator="cpu", strategy="ddp", devices=2, max_epochs=3, logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False)
    samples = data()  # Lightning's own sampler would shuffle
    sampler = torch.utils.data.DistributedSampler(samples, num_replicas=2, rank=trainer.global_rank, shuffle=False)
    trainer.fit(module, torch.utils.data.DataLoader(samples, batch_size=4, sampler=sampler))
    if trainer.is_global_zero:
        torch.save((module.state_dict(), float(trainer.callback_metrics["positive"])), sys.argv[2])
'''


# defect 14
@pytest.mark.slow
@pytest.mark.parametrize("sync_grads", [True, False])
def test_a_contrastive_loss_trains_as_in_lightning_on_two_processes(sync_grads: bool, tmp_path: Path) -> None:
    script, result = tmp_path / "contrastive.py", tmp_path / "result.pt"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, "-W", "ignore", str(script), str(sync_grads), str(result)], check=True, timeout=300)
    weights, positive = torch.load(result, weights_only=True)
    scope: dict[str, Any] = {"__name__": "contrastive"}
    exec(SCRIPT, scope)
    module = scope["make"](L, sync_grads)
    run = trainer(2, max_epochs=3)
    run.fit(module, torch.utils.data.DataLoader(scope["data"](), batch_size=4))
    torch.testing.assert_close(module.state_dict(), weights, rtol=1e-5, atol=1e-6)
    assert float(run.callback_metrics["positive"]) == positive


@pytest.mark.parametrize("devices", [1, 8])
def test_gradients_pass_where_lightning_lets_them_pass(devices: int) -> None:
    """With several devices only `sync_grads=True` does; a gathered tensor of one device is the tensor itself."""
    grads = {}
    for sync_grads in (True, False):

        def loss_of(module: Any, batch: Any, sync_grads: bool = sync_grads) -> torch.Tensor:
            y = module.layer(batch["x"])
            return F.mse_loss(y + module.all_gather(y, sync_grads=sync_grads).reshape(-1, 1), batch["y"])

        torch.manual_seed(0)
        module = Line(loss_of)
        before = module.layer.weight.detach().clone()
        trainer(devices).fit(module, batches(1))
        grads[sync_grads] = module.layer.weight.detach() - before
    expected = 1.0 if devices == 1 else 0.5
    torch.testing.assert_close(grads[False], expected * grads[True])
