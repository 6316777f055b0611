"""A run is what a call of the Trainer works with: one after the other, and beside each other for trials."""

from __future__ import annotations

from typing import Any

import pytest
from trainer.runs import Line, batches, trainer

import systolic as L
from systolic.trainer._run import Counters, Run


def test_before_the_first_call_there_is_a_run_of_nothing() -> None:
    run = trainer()
    assert (run.lightning_module, run.datamodule, run.ckpt_path) == (None, None, None)
    assert (run.current_epoch, run.global_step, run.optimizers, run.callback_metrics) == (0, 0, [], {})
    assert (run.state.fn, run.state.stage, run.should_stop, run.compiles) == (None, None, False, [])
    with pytest.raises(L.MisconfigurationException, match="nothing to save before fit"):
        run.save_checkpoint("a.ckpt")


def test_every_call_has_a_run_of_its_own_that_goes_on_from_the_last_one() -> None:
    seen: list[Run] = []

    class Seen(L.Callback):
        def on_fit_start(self, trainer: Any, module: Any) -> None:
            seen.append(trainer.run)

    module, run = Line(), trainer(callbacks=[Seen()])
    run.fit(module, batches(3))
    run.max_epochs = 2
    run.fit(module, batches(3))
    first, second = seen
    assert first is not second
    assert run.run is second
    assert first.counters == Counters(epoch=1, global_step=3, batches_that_stepped=3, batches_seen=3)
    assert second.counters == Counters(epoch=2, global_step=6, batches_that_stepped=6, batches_seen=6)


def test_a_prediction_keeps_the_optimizers_of_the_fit_before_it() -> None:
    class Predicts(Line):
        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            return self.layer(batch["x"])

    module, run = Predicts(), trainer()
    run.fit(module, batches(1))
    optimizers = run.optimizers
    run.predict(module, batches(1))
    assert list(map(id, run.optimizers)) == list(map(id, optimizers))
    run.predict(Predicts(), batches(1))
    assert run.optimizers == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_trial_is_a_run_beside_the_one_that_goes_on(fails: bool) -> None:
    inside: list[Any] = []

    class Looks(L.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            inside.append((trainer.run, trainer.max_steps, trainer.callbacks, trainer.loggers))
            if fails:
                raise KeyError("broken")

    class Tries(L.Callback):
        def on_fit_start(self, trainer: Any, module: Any) -> None:
            outer, config, weight = trainer.run, trainer.config, module.layer.weight.detach().clone()
            if fails:
                with pytest.raises(KeyError, match="broken"):
                    trainer.tuning.trial(2, [looks])
            else:
                trainer.tuning.trial(2, [looks])
            assert trainer.run is outer
            assert trainer.config is config
            assert module.layer.weight.equal(weight)

    looks, run = Looks(), trainer(callbacks=[Tries()])
    run.fit(Line(), batches(4))
    assert len(inside) == (1 if fails else 2)
    tried, max_steps, callbacks, loggers = inside[0]
    assert tried is not run.run
    assert (max_steps, callbacks, loggers) == (2, [looks], [])
    assert (run.global_step, run.max_steps, run.callbacks[0].__class__.__name__) == (4, -1, "Tries")
