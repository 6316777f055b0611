"""What an optimizer keeps for all parameters together, `self.state["k"]`, against eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import systolic


class _Counting(torch.optim.Optimizer):
    """Steps that are longer the more there were, as MADGRAD's."""

    def __init__(self, params: Any, count: Callable[[Any], Any]) -> None:
        super().__init__(params, {"lr": 0.02})
        self.count = count

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        factor = self.count(self.state) ** 0.5
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    moment = self.state[parameter].setdefault("moment", torch.zeros_like(parameter))
                    moment.mul_(0.5).add_(parameter.grad)
                    parameter.sub_(group["lr"] * factor * moment)
        return loss


def _in_place(state: Any) -> Any:
    if "k" not in state:
        state["k"] = torch.tensor([0])
    return state["k"].add_(1)


def _replaced(state: Any) -> Any:
    state["k"] = state["k"] + 1 if "k" in state else torch.ones(())
    return state["k"]


def _number(state: Any) -> Any:
    state["n"] = state["n"] + 1 if "n" in state else 1
    return state["n"]


def _inside(state: Any) -> Any:
    shared = state["all"]  # a dict, which `state` makes
    shared["k"] = shared.get("k", torch.zeros(2)) + 1
    return shared["k"][0]


COUNTS: dict[str, Callable[[Any], Any]] = {
    "in place": _in_place, "replaced": _replaced, "a number": _number, "in a dict": _inside
}  # fmt: skip


class _Module(systolic.LightningModule):
    def __init__(self, count: Callable[[Any], Any]) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        self.count = count

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return (self.net(batch) - batch[:, :2].sin()).square().mean()

    def configure_optimizers(self) -> Any:
        return _Counting(self.parameters(), self.count)


BATCHES = torch.linspace(-2, 2, 6 * 8 * 3).reshape(6, 8, 3)


def _eager(module: _Module, epochs: int = 1) -> torch.optim.Optimizer:
    optimizer = module.configure_optimizers()
    for batch in list(BATCHES) * epochs:
        optimizer.zero_grad()
        module.training_step(batch, 0).backward()
        optimizer.step()
    return optimizer


def _trainer(devices: int, **options: Any) -> systolic.Trainer:
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return systolic.Trainer(accelerator="cpu", devices=devices, **{"enable_checkpointing": False, **quiet, **options})


def _loader(devices: int) -> DataLoader[Any]:
    return DataLoader(BATCHES.flatten(0, 1), batch_size=8 // devices)  # type: ignore[arg-type]


def _module(name: str) -> _Module:
    torch.manual_seed(1)
    return _Module(COUNTS[name])


def _require_equal(module: _Module, wanted: _Module, state: Any, wanted_state: Any) -> None:
    for got, want in zip(module.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=1e-5, atol=1e-6)
    shared = [{key: value for key, value in one.items() if isinstance(key, str)} for one in (state, wanted_state)]
    torch.testing.assert_close(*shared)


@pytest.mark.thin(2)
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", COUNTS)
def test_state_of_all_parameters(name: str, devices: int) -> None:
    module = _module(name)
    wanted = copy.deepcopy(module)
    optimizer = _eager(wanted)
    trainer = _trainer(devices, max_epochs=1)
    trainer.fit(module, _loader(devices))
    _require_equal(module, wanted, trainer.optimizers[0].state, optimizer.state)
    assert len(trainer.compiles) <= 3, [compiled.reason for compiled in trainer.compiles]


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", COUNTS)
def test_it_is_in_checkpoints(name: str, tmp_path: Path) -> None:
    module = _module(name)
    wanted = copy.deepcopy(module)
    optimizer = _eager(wanted, epochs=2)
    first = _trainer(1, max_epochs=1)
    first.fit(module, _loader(1))
    first.save_checkpoint(tmp_path / "first.ckpt")
    resumed, trainer = _module(name), _trainer(1, max_epochs=2)
    trainer.fit(resumed, _loader(1), ckpt_path=str(tmp_path / "first.ckpt"))
    _require_equal(resumed, wanted, trainer.optimizers[0].state, optimizer.state)
