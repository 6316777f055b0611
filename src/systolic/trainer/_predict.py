"""The prediction loop."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from ..metrics import Results, StepLog
from ..runtime._device_tensor import DeviceTensor
from ._feed import feed
from ._hook_changes import call_on_batch
from ._hooks import step_arguments
from ._modes import evaluation_mode
from ._statics import BatchStatics
from ._step_engine import StepEngine
from ._steps import after_transfer


class PredictStep:
    """predict_step, without gradients."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.dataloader_idx = 0
        self.statics = BatchStatics()

    def __call__(self, batch: Any, batch_idx: Any, epoch: Any, global_step: Any) -> dict[str, Any]:
        """Run the step."""
        module = self._trainer.lightning_module
        symbols = SimpleNamespace(epoch=epoch, global_step=global_step)
        with self._trainer._inside_step("predict_step", StepLog(Results(), lambda: 1), symbols), torch.no_grad():
            batch = after_transfer(self._trainer._hooks, batch, self.dataloader_idx)
            with self._trainer._precision.step_context():
                output = module.predict_step(*step_arguments(module.predict_step, batch, batch_idx, self.dataloader_idx))
            return {"output": output, "logged": {}}


def predict(trainer: Any, loaders: list[Any], limits: list[int | float], keep: bool) -> list[list[Any]]:
    """Predict for every batch of every loader.

    Args:
        trainer: the trainer.
        loaders: where the batches come from.
        limits: how many batches of each.
        keep: whether to return the predictions.

    Returns:
        For every loader the list of what predict_step returned, as ordinary CPU tensors.
    """
    hooks = trainer._hooks
    step = PredictStep(trainer)
    engine: StepEngine = trainer._make_engine(step, "predict", Results())
    with evaluation_mode(trainer, "predict"):
        hooks.both("on_predict_start")
        hooks.both("on_predict_epoch_start")
        found: list[list[Any]] = []
        for index, (loader, limit) in enumerate(zip(loaders, limits, strict=True)):
            step.dataloader_idx = index
            outputs = list(_outputs(trainer, engine, step, loader, limit, keep))
            engine.verify()
            # fetched here, after the last batch was dispatched, so that no batch waits for the host
            found.append([tree_map_only(DeviceTensor, lambda t: t.cpu(), output) for output in outputs])
        hooks.both("on_predict_epoch_end")
        hooks.both("on_predict_end")
    return found


def _outputs(trainer: Any, engine: StepEngine, step: PredictStep, loader: Any, limit: int | float, keep: bool) -> Iterator[Any]:
    """What predict_step returns for each batch of a loader, where it is kept."""
    hooks, index = trainer._hooks, step.dataloader_idx
    options = {"transform": trainer._before_transfer(), "precision": trainer._precision, "dataloader_idx": index}
    batches = feed(loader, trainer._placement, depth=trainer.prefetch_batches, limit=limit, **options)
    for batch in trainer._observed(batches, "predict"):
        call_on_batch(hooks, "on_predict_batch_start", batch, trainer._placement, batch.index, index)
        numbers = {"batch_idx": batch.index, "epoch": trainer._current_epoch, "global_step": trainer._global_step}
        key, rebuild = step.statics.enter(batch.spec, batch.statics)
        result = engine.run(batch.leaves, (key, index), rebuild, numbers)
        trainer._throttle(result)
        output = result.value()["output"]
        hooks.both("on_predict_batch_end", output, batch.host, batch.index, index)
        hooks.callbacks("on_step_dispatched", batch.index)
        if keep:
            yield output
