"""Optimizers that call their closure as often as values ask for (LBFGS): losses, weights and state equal Lightning's."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from trainer.three_ways import Outcome, compare, loader, quiet_trainer, regression, require_equal, run

import systolic as L
from systolic.exceptions import MisconfigurationException


def ridge(base: Any, **methods: Any) -> Any:
    """The small regression with one best answer.

    LBFGS divides by differences of gradients, in which rounding comes up again: where the loss has flat directions or jumps, two
    runs that round otherwise have nothing in common after some steps.
    """

    def loss(self: Any, batch: Any) -> torch.Tensor:
        penalty = torch.cat([p.flatten() for p in self.parameters()]).square().sum()
        return nn.functional.softplus(self.first(batch[0]).sum(-1, keepdim=True) - batch[1]).square().mean() + 0.05 * penalty

    return regression(base, **{"loss": loss, **methods})


def lbfgs(base: Any, methods: dict[str, Any] | None = None, **options: Any) -> Any:
    """It under LBFGS."""

    def configure_optimizers(self: Any) -> Any:
        return torch.optim.LBFGS(self.parameters(), **options)

    return ridge(base, configure_optimizers=configure_optimizers, **(methods or {}))


def many() -> Any:
    """Four batches an epoch."""
    return loader(count=200, batch_size=50)


EXACT: dict[str, Any] = {"precision": "64-true", "max_epochs": 3}


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("max_iter", [2, 5, 12])
def test_lbfgs_equals_lightning(max_iter: int, search: str | None) -> None:
    outcome = compare(
        lambda base: lbfgs(base, lr=0.5, max_iter=max_iter, history_size=5, line_search_fn=search),
        train=many(), **EXACT,
    )  # fmt: skip
    assert len(outcome.losses) == 12
    assert outcome.losses[-1] < outcome.losses[0]
    assert len(outcome.trainer.compiles) == 1


@pytest.mark.parametrize("strategy", ["auto", "fsdp"])
def test_on_eight_cores(strategy: str) -> None:
    build = lambda base: lbfgs(base, lr=0.5, max_iter=3)  # noqa: E731
    options: dict[str, Any] = {**EXACT, "batch_size": 16}
    cores = run("compiled", build, devices=8, strategy=strategy, **options)
    require_equal(cores, run("lightning", build, **options))


def test_every_call_of_the_closure_counts() -> None:
    """Statistics of BatchNorm, logged means, counters and draws advance with each computation of the loss."""

    def build(base: Any) -> Any:
        class Noisy(base):
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1))
                self.calls = 0
                self.seen: list[float] = []

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
                self.calls += 1
                self.seen.append(loss.item())
                self.log("mean", loss, on_step=False, on_epoch=True)
                self.log("last", loss, on_step=True, on_epoch=False)
                return {"loss": loss, "rows": batch[0].sum()}

            def configure_optimizers(self) -> Any:
                optimizer = torch.optim.LBFGS(self.parameters(), lr=0.05, max_iter=3)
                return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]

        return Noisy

    outcome = compare(build, train=many(), **EXACT)
    theirs = run("lightning", build, train=many(), **EXACT)
    assert outcome.module.calls == theirs.module.calls > 24
    assert outcome.module.seen == pytest.approx(theirs.module.seen)
    assert outcome.rates[-1] == outcome.rates[0] / 8


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate_grad_batches": 3},
        {"gradient_clip_val": 0.5},
        {"gradient_clip_val": 0.2, "gradient_clip_algorithm": "value"},
    ],
)
def test_what_combines_equals_lightning(options: dict[str, Any]) -> None:
    compare(lambda base: lbfgs(base, lr=0.05, max_iter=3), train=many(), **EXACT, **options)


def test_hooks_around_each_computation() -> None:
    def on_after_backward(self: Any) -> None:
        for p in self.parameters():
            p.grad.mul_(0.9)

    def on_before_optimizer_step(self: Any, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.add_(0.01 * p.detach())

    def optimizer_step(self: Any, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        assert isinstance(optimizer, torch.optim.LBFGS)
        loss = optimizer.step(closure=optimizer_closure)
        self.returned = [*getattr(self, "returned", ()), loss.item()]

    hooks = {f.__name__: f for f in (on_after_backward, on_before_optimizer_step, optimizer_step)}
    outcome = compare(lambda base: lbfgs(base, hooks, lr=0.05, max_iter=3), train=many(), **EXACT)
    assert outcome.module.returned[1:] != outcome.losses[1:]  # the first computation, not the last


def _resumed(kind: str, package: Any, path: Path) -> Outcome:
    build = lambda base: lbfgs(base, max_iter=3, line_search_fn="strong_wolfe")  # noqa: E731
    options: dict[str, Any] = {"train": many(), "precision": "64-true"}
    first = run(kind, build, max_epochs=2, **options)
    first.trainer.save_checkpoint(path / f"{kind}.ckpt")
    again = run(kind, build, max_epochs=0, **options)
    trainer = package.Trainer(accelerator="cpu", devices=1, max_epochs=4, logger=False, enable_checkpointing=False,
                              enable_progress_bar=False, enable_model_summary=False, precision="64-true")  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's, of PyTorch
        trainer.fit(again.module, many(), ckpt_path=path / f"{kind}.ckpt", weights_only=False)
    again.parameters = {name: p.detach().clone() for name, p in again.module.state_dict().items()}
    return again


def test_checkpoints_hold_its_state_as_pytorch_has_it(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    theirs, ours = _resumed("lightning", lightning, tmp_path), _resumed("compiled", L, tmp_path)
    require_equal(ours, theirs)
    states = [
        torch.load(tmp_path / f"{kind}.ckpt", weights_only=False)["optimizer_states"][0] for kind in ("compiled", "lightning")
    ]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    assert states[0]["state"].keys() == states[1]["state"].keys() == {0}
    torch.testing.assert_close(states[0]["state"][0], states[1]["state"][0], rtol=1e-4, atol=1e-7)
    whole = run("compiled", lambda base: lbfgs(base, max_iter=3, line_search_fn="strong_wolfe"), train=many(),
                max_epochs=4, precision="64-true")  # fmt: skip
    torch.testing.assert_close(ours.parameters, whole.parameters, rtol=1e-6, atol=1e-9)


class Backtracking(torch.optim.Optimizer):
    """Gradient descent that halves its step until the loss falls."""

    steps_on_host = True

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 4.0})

    @torch.no_grad()
    def step(self, closure: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        with torch.enable_grad():
            loss = closure()
        parameters = [p for group in self.param_groups for p in group["params"]]
        gradients, start = [p.grad.clone() for p in parameters], [p.clone() for p in parameters]
        rate = self.param_groups[0]["lr"]
        while rate > 1e-4:
            for p, s, g in zip(parameters, start, gradients, strict=True):
                p.copy_(s - rate * g)
            with torch.enable_grad():
                if closure() < loss:
                    break
            rate *= 0.5
        self.state[parameters[0]]["rate"] = rate
        return loss


def test_an_optimizer_of_ones_own() -> None:
    def configure_optimizers(self: Any) -> Any:
        return Backtracking(self.parameters())

    build = lambda base: regression(base, configure_optimizers=configure_optimizers)  # noqa: E731
    outcome = compare(build, train=many(), **EXACT)
    assert outcome.trainer.optimizers[0].state_dict()["state"][0]["rate"] < 4.0


def test_it_is_told_once_what_the_host_costs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="systolic"):
        run("compiled", lambda base: lbfgs(base, lr=0.1, max_iter=2, tolerance_grad=0, tolerance_change=0))
    told = [m for m in caplog.messages if "steps on the host" in m]
    assert len(told) == 1
    assert "This step called 2," in told[0]


def test_steps_per_dispatch_is_not_used() -> None:
    module = lbfgs(L.LightningModule, lr=0.1, max_iter=2)()
    with pytest.warns(UserWarning, match="steps_per_dispatch=4 is not used.*LBFGS steps on the host"):
        quiet_trainer(steps_per_dispatch=4).fit(module, loader())


def test_mixed_precision_equals_eager() -> None:
    compare(lambda base: lbfgs(base, lr=0.1, max_iter=2), lightning=False, max_epochs=1, precision="bf16-mixed")


def test_in_manual_optimization_it_is_refused() -> None:
    def __init__(self: Any) -> None:  # noqa: N807
        type(self).__mro__[1].__init__(self)
        self.automatic_optimization = False

    module = lbfgs(L.LightningModule, {"__init__": __init__})()
    with pytest.raises(MisconfigurationException, match="LBFGS decides by values.*Remove `self.automatic_optimization"):
        quiet_trainer().fit(module, loader())


def test_a_step_without_a_loss_is_refused() -> None:
    module = lbfgs(L.LightningModule, {"training_step": lambda self, batch, batch_idx: None})()
    with pytest.warns(UserWarning, match="returned `None`"):
        with pytest.raises(MisconfigurationException, match="returned None, and LBFGS asks for the loss"):
            quiet_trainer().fit(module, loader())


def test_preflight_takes_the_computation_of_the_loss() -> None:
    module = lbfgs(L.LightningModule)()
    report = quiet_trainer().preflight(module, loader(), slice="v5litepod-4")
    assert report is not None
