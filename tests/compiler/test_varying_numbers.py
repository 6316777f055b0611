"""Numbers that programs take as inputs, and what a run that goes on from another one knows of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import systolic as L
from systolic.compiler import VaryingNumbers

BETA = ("optimizer0", "param_groups", 0, "betas", 0)
RATE = ("optimizer0", "param_groups", 0, "lr")


def values(rate: float, beta: float) -> dict[Any, Any]:
    return {RATE: rate, BETA: beta, ("model", "count"): 3, ("optimizer0", "param_groups", 0, "amsgrad"): False}


def test_what_an_optimizer_changed_since_the_first_trace_is_an_input() -> None:
    numbers = VaryingNumbers()
    numbers.notice(values(0.1, 0.9))
    assert numbers.paths == {RATE}
    numbers.notice(values(0.1, 0.8) | {("model", "count"): 4})
    assert numbers.paths == {RATE, BETA}


def test_what_no_trace_can_take_stays_a_constant() -> None:
    numbers = VaryingNumbers()
    numbers.notice(values(0.1, 0.9))
    numbers.proved(frozenset({RATE}))
    numbers.add(("model", "count"), 3, 4)
    assert list(numbers.choices()) == [{RATE, ("model", "count")}, {RATE}]
    numbers.proved(frozenset({RATE}))
    numbers.add(("model", "count"), 4, 5)
    assert list(numbers.choices()) == [{RATE}]


def test_what_schedulers_move_is_an_input_from_the_start() -> None:
    numbers = VaryingNumbers()
    group = ("optimizer0", "param_groups", 0)
    numbers.notice(values(0.1, 0.9) | {(*group, "max_momentum"): 0.95, (*group, "betas", 1): 0.99, (*group, "momentum"): 0.5})
    assert numbers.paths == {RATE, BETA, (*group, "momentum")}
    assert list(numbers.choices()) == [numbers.paths, {RATE}]  # where a trace cannot take a momentum, it takes the rate


@pytest.mark.parametrize("later", [0.9, 0.8])
def test_a_run_that_goes_on_knows_what_had_changed(later: float) -> None:
    numbers, resumed = VaryingNumbers(), VaryingNumbers()
    numbers.notice(values(0.1, 0.9))
    resumed.load_state_dict(numbers.state_dict())
    for one in (numbers, resumed):
        one.notice(values(0.1, later))
    assert numbers.paths == resumed.paths
    assert (BETA in resumed.paths) is (later != 0.9)


class Cycles(L.LightningModule):
    """Its scheduler moves the learning rate and Adam's first beta, or it moves the beta itself."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.own = own

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.own:
            (group,) = self.optimizers().param_groups
            group["betas"] = (0.9 - 0.01 * self.trainer.global_step, 0.99)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).square().mean()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        if self.own:
            return optimizer
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 20), "interval": "step"}]


@pytest.mark.parametrize(("own", "programs"), [(False, 1), (True, 2)])
def test_a_resumed_run_compiles_no_program_for_one_value_of_beta(own: bool, programs: int, tmp_path: Any) -> None:
    def fit(steps: int, ckpt_path: str | None = None) -> L.Trainer:
        trainer = L.Trainer(
            accelerator="cpu", devices=1, max_steps=steps, max_epochs=2, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, advice=False,
        )  # fmt: skip
        torch.manual_seed(0)
        trainer.fit(Cycles(own), torch.utils.data.DataLoader(torch.randn(6, 3), batch_size=1), ckpt_path=ckpt_path)
        return trainer

    first = fit(1)
    first.save_checkpoint(tmp_path / "one.ckpt")
    resumed = fit(6, str(tmp_path / "one.ckpt"))
    assert len(fit(6).compiles) == programs  # one beside the constant of the first step, where nothing said that it moves
    assert len(resumed.compiles) == 1
