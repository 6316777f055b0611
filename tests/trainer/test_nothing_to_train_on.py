"""A loader may give None for some batches: they are passed over as Lightning passes over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, default_collate
from trainer.as_lightning import Package, require_same
from trainer.three_ways import quiet_trainer, regression, samples

import systolic as L


def sparse(nothing: set[int], count: int = 24) -> Any:
    """A loader of batches of four, some of which are None."""
    data = samples(count)
    empty = [data[4 * number][0] for number in nothing]

    def collate(chosen: list[Any]) -> Any:
        return None if any(torch.equal(chosen[0][0], first) for first in empty) else default_collate(chosen)

    return DataLoader(data, batch_size=4, collate_fn=collate)


def _scheduled(self: Any) -> Any:
    optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


@pytest.mark.parametrize("nothing", [{0}, {1, 2}, {5}, {0, 3, 5}], ids=str)
@pytest.mark.parametrize("window", [1, 2])
def test_nothing_is_learned_from_it(nothing: set[int], window: int) -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []
        hooks = {
            "on_train_batch_start": lambda self, batch, batch_idx: seen.append(("start", batch_idx)),
            "on_train_batch_end": lambda self, outputs, batch, batch_idx: seen.append((outputs is None, batch_idx)),
        }
        run = package.trainer(max_epochs=2, accumulate_grad_batches=window)
        module = package.module(configure_optimizers=_scheduled, **hooks)
        told = package.warned(lambda: run.fit(module, sparse(nothing)), "train_dataloader yielded None")
        rate = run.optimizers[0].param_groups[0]["lr"]
        return told, seen, run.global_step, rate, run.fit_loop.epoch_loop.batch_progress.total.completed, module.state_dict()

    assert require_same(scenario)[0] is True


@pytest.mark.parametrize("compiled", [False, True])
def test_a_run_goes_on_after_it(compiled: bool, tmp_path: Path) -> None:
    def fitted(**call: Any) -> Any:
        saver = L.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1, filename="{step}")
        run = quiet_trainer(callbacks=[saver], enable_checkpointing=True, compile=compiled)
        torch.manual_seed(0)
        module = regression(L.LightningModule)()
        with pytest.warns(UserWarning, match="yielded None"):
            run.fit(module, sparse({1, 3}), **call)
        return run.global_step, module.state_dict()

    whole, resumed = fitted(), fitted(ckpt_path=tmp_path / "step=2.ckpt")
    assert whole[0] == resumed[0] == 4
    assert all(torch.equal(value, resumed[1][name]) for name, value in whole[1].items())
