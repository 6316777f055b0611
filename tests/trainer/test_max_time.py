"""`Trainer(max_time=...)` is a Timer, as in Lightning: its clock goes on where a checkpoint was saved."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader


def timers(package: Package, trainer: Any) -> list[Any]:
    return [callback for callback in trainer.callbacks if isinstance(callback, package.L.callbacks.Timer)]


def test_checkpoints_know_how_much_time_is_gone() -> None:
    def scenario(package: Package) -> Any:
        trainer = package.trainer(max_time={"hours": 1}, callbacks=[package.checkpoint()], enable_checkpointing=True)
        trainer.fit(package.module(), loader())
        path = trainer.checkpoint_callback.best_model_path
        gone = torch.load(path, weights_only=False)["callbacks"]["Timer"]["time_elapsed"]["train"]
        again = package.trainer(max_time="00:00:00:01", max_epochs=3)
        checkpoint = torch.load(path, weights_only=False)
        checkpoint["callbacks"]["Timer"]["time_elapsed"]["train"] = 2.0
        torch.save(checkpoint, path)
        again.fit(package.module(), loader(), ckpt_path=path, weights_only=False)
        return gone > 0, again.global_step, round(timers(package, trainer)[0].time_remaining() / 3600, 1)

    assert require_same(scenario) == (True, 5, 1.0)


@pytest.mark.parametrize("given", [{"seconds": 7}, "00:00:00:07", timedelta(seconds=7)], ids=["dict", "text", "timedelta"])
def test_the_users_timer_comes_first(given: Any) -> None:
    def scenario(package: Package) -> Any:
        own = package.L.callbacks.Timer(duration={"minutes": 1})
        both = package.trainer(max_time=given, callbacks=[own])
        return [one.time_remaining() for one in (*timers(package, both), *timers(package, package.trainer(max_time=given)))]

    assert require_same(scenario) == [60.0, 7.0]
