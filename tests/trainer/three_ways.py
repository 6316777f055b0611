"""Run one module under the compiled Trainer, under `compile=False`, and under Lightning, and compare what came out."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

Build = Callable[[Any], Any]
QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def samples(count: int = 20, seed: int = 1) -> TensorDataset:
    """A small regression problem."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [0.0]]) + 0.1 * torch.randn(count, 1, generator=generator)
    return TensorDataset(x, y)


def loader(count: int = 20, batch_size: int = 4, seed: int = 1) -> DataLoader[Any]:
    return DataLoader(samples(count, seed), batch_size=batch_size)


def quiet_trainer(**options: Any) -> L.Trainer:
    """A Trainer on one simulated core that only computes."""
    return L.Trainer(**{"accelerator": "cpu", "devices": 1, "max_epochs": 1, **QUIET, **options})


def regression(base: Any, **methods: Any) -> Any:
    """A small LightningModule (of systolic's or Lightning's base class), with methods replaced or added."""

    class Regression(base):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(4, 8)
            self.second = torch.nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.tanh(self.first(x)))

        def loss(self, batch: Any) -> torch.Tensor:
            return F.mse_loss(self(batch[0]), batch[1])

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    return type("Regression", (Regression,), methods)


@dataclass
class Outcome:
    """What a run left."""

    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    trainer: Any = None
    module: Any = None


def _recorder(base: Any, outcome: Outcome) -> Any:
    class Recorder(base):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            outcome.losses.append(outputs["loss"].item() if outputs else float("nan"))  # {}: the batch was skipped
            groups = [g for o in trainer.optimizers for g in o.param_groups]
            outcome.rates += [float(g["lr"]) for g in groups]
            outcome.steps.append(trainer.global_step)

    return Recorder()


def run(
    kind: str,
    build: Build,
    *,
    val: Any = None,
    train: Any = None,
    batch_size: int = 4,
    devices: int = 1,
    callbacks: Callable[[Any], list[Any]] = lambda base: [],
    **options: Any,
) -> Outcome:
    """Fit in one of three ways: "compiled", "eager" or "lightning"; `batch_size` is that of all devices together."""
    outcome = Outcome()
    if kind == "lightning":
        package = pytest.importorskip("lightning.pytorch")
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        options = {"accelerator": "cpu", "devices": 1, **options}
    else:
        package = L
        options = {"accelerator": "cpu", "devices": devices, "compile": kind == "compiled", **options}
    per_device = batch_size // devices if kind == "compiled" else batch_size
    torch.manual_seed(0)
    outcome.module = build(package.LightningModule)()
    recorder = _recorder(package.Callback, outcome)
    options = {"max_epochs": 2, **QUIET, **options, "callbacks": [*callbacks(package.Callback), recorder]}
    with warnings.catch_warnings():
        if kind == "lightning":
            warnings.simplefilter("ignore")
        outcome.trainer = package.Trainer(**options)
        outcome.trainer.fit(outcome.module, loader(batch_size=per_device) if train is None else train, val)
    outcome.parameters = {name: p.detach().clone() for name, p in outcome.module.state_dict().items()}
    outcome.metrics = {name: float(v) for name, v in outcome.trainer.callback_metrics.items()}
    return outcome


def require_equal(one: Outcome, other: Outcome, *, rtol: float = 1e-5) -> None:
    """Losses, learning rates, step counts, metrics and parameters agree."""
    torch.testing.assert_close(torch.tensor(one.losses), torch.tensor(other.losses), rtol=rtol, atol=1e-7, equal_nan=True)
    assert one.rates == pytest.approx(other.rates, rel=1e-6)
    assert one.steps == other.steps
    assert one.metrics == pytest.approx(other.metrics, rel=rtol, abs=1e-7)
    assert list(one.parameters) == list(other.parameters)
    for name, value in one.parameters.items():
        torch.testing.assert_close(value, other.parameters[name], rtol=rtol, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


def compare(build: Build, *, lightning: bool = True, **options: Any) -> Outcome:
    """Fit in all three ways, require equal outcomes, and return the compiled one."""
    compiled, eager = run("compiled", build, **options), run("eager", build, **options)
    require_equal(compiled, eager)
    if lightning:
        require_equal(eager, run("lightning", build, **options))
    return compiled
