"""Errors that a step raises for the values of a batch: the user's own, with the state before it, without a wait in each step."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from trainer.runs import SILENT, Given, trainer

import systolic as L
from systolic.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from systolic.compiler import CheckWatch
from systolic.exceptions import MisconfigurationException

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning:lightning", "ignore:.*does not have many workers", "ignore:.*fit.ckpt_path="
)


def classes(base: Any) -> Any:
    class Guarded(base.LightningModule):
        """Looks at its labels and its loss before it goes on."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Linear(4, 3)
            self.calls = 0

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.calls += 1
            x, y = batch
            if y.max() >= 3:
                raise ValueError(f"batch {batch_idx} has the label {int(y.max())}")
            loss = F.cross_entropy(self.net(x), y)
            assert torch.isfinite(loss), f"a loss of {loss.item()}"
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            assert (batch[1] < 3).all(), "a label of the validation data"

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.1)

    return Guarded()


def batches(count: int, bad: int = -1, label: int = 7, value: float = 1.0) -> list[Any]:
    made = [[torch.full((8, 4), 0.1 * i), torch.arange(8) % 3] for i in range(count)]
    if bad >= 0:
        made[bad][0][2, 1] *= value
        made[bad][1][5] = label
    return made


def weights(module: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def require_trained(module: nn.Module, steps: int) -> None:
    """The module is as Lightning's after this many steps."""
    other = classes(lightning)
    if steps:
        lightning.Trainer(max_epochs=1, **SILENT, devices=1).fit(other, DataLoader(batches(steps), batch_size=None))
    for received, expected in zip(weights(module), weights(other), strict=True):
        torch.testing.assert_close(received, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"steps_per_dispatch": 4}, {"devices": 8}, {"devices": 8, "steps_per_dispatch": 4}])
def test_fit_ends_with_the_users_error_and_the_state_before_the_step(options: dict[str, Any]) -> None:
    module = classes(L)
    with pytest.raises(ValueError, match="batch 6 has the label 7") as caught:
        trainer(**options).fit(module, Given(batches(40, bad=6)))
    require_trained(module, 6)
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert lines[-1] == 'raise ValueError(f"batch {batch_idx} has the label {int(y.max())}")'
    assert "in the step with batch_idx 6, epoch 0, global_step 6;" in "\n".join(caught.value.__notes__)


def test_the_first_batch_is_like_any_other() -> None:
    module = classes(L)
    with pytest.raises(ValueError, match="batch 0 has the label 9"):
        trainer().fit(module, Given(batches(3, bad=0, label=9)))
    require_trained(module, 0)


def test_a_loss_that_is_not_finite() -> None:
    module = classes(L)
    with pytest.raises(AssertionError, match="a loss of nan"):
        trainer().fit(module, Given(batches(12, bad=3, label=0, value=float("nan"))))
    require_trained(module, 3)


def test_groups_of_steps_are_dispatched_together() -> None:
    training = trainer(steps_per_dispatch=4)
    training.fit(Uncounted(), Given(batches(12)))
    assert "steps_per_dispatch=4" in [one.reason for one in training.compiles]


class Uncounted(L.LightningModule):
    """Changes no Python object, so that its steps can be grouped."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 3)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch[1].max() >= 3:
            raise ValueError(f"batch {batch_idx}")
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.1)


@pytest.mark.parametrize("bad", range(4, 9))
def test_any_step_of_a_group(bad: int) -> None:
    module, other = Uncounted(), Uncounted()
    other.load_state_dict(module.state_dict())
    with pytest.raises(ValueError, match=f"batch {bad}"):
        trainer(steps_per_dispatch=4).fit(module, Given(batches(24, bad=bad)))
    trainer().fit(other, Given(batches(bad)))
    for received, expected in zip(weights(module), weights(other), strict=True):
        torch.testing.assert_close(received, expected, rtol=1e-5, atol=1e-6)


def test_validation() -> None:
    with pytest.raises(AssertionError, match="a label of the validation data"):
        trainer().validate(classes(L), Given(batches(4, bad=2)))


def saving(kind: str, path: Path) -> Any:
    return OnExceptionCheckpoint(path) if kind == "own" else ModelCheckpoint(path, save_on_exception=True, save_top_k=0)


@pytest.mark.parametrize("kind", ["own", "model"])
@pytest.mark.parametrize("label", [7, 0])
def test_a_checkpoint_on_the_exception_is_that_of_lightning(kind: str, label: int, tmp_path: Path) -> None:
    """Counters, optimizer and weights are of one moment, and the run goes on with the batch that was refused."""
    module, value = classes(L), 1.0 if label else float("nan")
    given = batches(12, bad=5, label=label, value=value)
    callbacks = [saving(kind, tmp_path / "ours")]
    with pytest.raises((ValueError, AssertionError)):
        trainer(callbacks=callbacks, enable_checkpointing=True).fit(module, DataLoader(given, batch_size=None))
    other = classes(lightning)
    with pytest.raises((ValueError, AssertionError)):
        lightning.Trainer(
            max_epochs=1,
            callbacks=[lightning.pytorch.callbacks.OnExceptionCheckpoint(tmp_path / "theirs")],
            **SILENT | {"enable_checkpointing": True},
            devices=1,
        ).fit(other, DataLoader(given, batch_size=None))
    assert module.calls == 5  # its step is as if it had not been, where PyTorch leaves what came before the error
    (path,), (expected_path,) = (list((tmp_path / name).iterdir()) for name in ("ours", "theirs"))
    saved, expected = torch.load(path, weights_only=False), torch.load(expected_path, weights_only=False)
    assert saved["global_step"] == expected["global_step"] == 5
    progress = saved["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
    assert progress["completed"] == expected["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]["completed"] == 5
    for name, tensor in expected["state_dict"].items():
        torch.testing.assert_close(saved["state_dict"][name], tensor, rtol=1e-5, atol=1e-6)
    again = classes(L)
    trainer().fit(again, DataLoader(batches(12), batch_size=None), ckpt_path=path, weights_only=False)
    require_trained(again, 12)


def test_what_is_of_two_moments_is_not_saved(tmp_path: Path) -> None:
    training = trainer()
    with pytest.raises(ValueError, match="batch 2"):
        training.fit(classes(L), Given(batches(40, bad=2)))
    with pytest.raises(MisconfigurationException, match=r"learned \d+ steps later"):
        training.save_checkpoint(tmp_path / "whole.ckpt")
    training.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.ckpt"]
    training.fit(classes(L), Given(batches(4)))
    training.save_checkpoint(tmp_path / "whole.ckpt")


def test_nor_where_the_error_came_right_behind_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host had counted that step, and called what it calls after one."""
    monkeypatch.setattr(CheckWatch, "look", CheckWatch.settle)
    training = trainer()
    with pytest.raises(ValueError, match="batch 2"):
        training.fit(classes(L), Given(batches(5, bad=2)))
    assert training.global_step == 3
    with pytest.raises(MisconfigurationException, match="learned 1 steps later"):
        training.save_checkpoint(tmp_path / "whole.ckpt")
