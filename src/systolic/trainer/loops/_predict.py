"""The prediction loop."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ...compiler import with_ordinary_tensors
from ...metrics import Results
from .._batch_indices import NotingIndices, prediction_writers
from .._indexed_hooks import require_index_as_needed
from .._left_batches import as_left
from .._looked_at import depth_for
from .._modes import evaluation_mode
from .._stage import Stage
from .._steps import EvaluationStep
from ._feed import feed
from ._runner import BatchRunner

if TYPE_CHECKING:
    from .._run import Run

_STAGE = Stage.PREDICT


class PredictionLoop:
    """Predict for every batch of every loader."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.step = EvaluationStep(run, _STAGE, Results())
        self.runner = BatchRunner(run, self.step, _STAGE)
        self.indices: list[list[int]] | None = None
        self._told = self._keeps_indices = False
        self._done = 0

    def run(self, keep: bool) -> list[list[Any]]:
        """Predict.

        Args:
            keep: whether to return the predictions.

        Returns:
            For every loader the list of what predict_step returned, as ordinary CPU tensors.
        """
        run = self._run
        found, writers = run.predictions, prediction_writers(run.config.callbacks)
        self._keeps_indices = any(writer.interval.on_epoch for writer in writers)
        keep = keep or self._keeps_indices
        with self.begun():
            self.runner.begins()
            loaders, limits = run.evaluation_loaders(_STAGE)  # a finder of batch sizes has them made again in the first hooks
            self.step.of_several = len(loaders) > 1
            require_index_as_needed(run.module, _STAGE, self.step.of_several)
            for index, (loader, limit) in enumerate(zip(loaders, limits, strict=True)):
                self.step.dataloader_idx = index
                noting = NotingIndices(loader) if writers else None
                self.indices = noting.batches if noting is not None else None
                run.predicted_indices.append([])
                outputs = list(self._outputs(loader if noting is None else noting.loader, limit, keep))
                self.runner.engine.verify()
                # fetched here, after the last batch was dispatched, so that no batch waits for the host
                if not self._keeps_indices:
                    run.predicted_indices[-1].clear()
                found.append([with_ordinary_tensors(output) for output in outputs])
            run.progress.evaluated(self._done)
            self._run.hooks.both(_STAGE.epoch_end)
            self._run.hooks.both(_STAGE.end)
        return found

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Inside, batches may be predicted for: in eval mode, without gradients, after the first hooks."""
        run = self._run
        # a compiled step has no autograd in either mode
        eager = run.placement is None and run.config.inference_mode
        with torch.inference_mode() if eager else torch.no_grad(), evaluation_mode(run, _STAGE):
            self._run.hooks.both(_STAGE.start)
            self._run.hooks.both(_STAGE.epoch_start)
            yield

    def _warn_of_nothing(self, output: Any) -> None:
        if output is None and not self._told:
            self._told = True
            name = type(self._run.module).__name__
            warnings.warn(
                f"predict returned None for a batch: there is no prediction of {name}.predict_step for it.", stacklevel=2
            )

    def _outputs(self, loader: Any, limit: int | float, keep: bool) -> Iterator[Any]:
        """Results of predict_step for each batch of a loader, where they are kept."""
        run, runner, index = self._run, self.runner, self.step.dataloader_idx
        hooks, config = run.hooks, run.config
        place = (index,) if len(run.evaluation_loaders(_STAGE)[0]) > 1 else ()
        options = {"transform": run.before_transfer(), "precision": config.numerics, "dataloader_idx": index}
        batches = feed(loader, run.placement, depth=depth_for(run, loader), limit=limit, **options)
        for batch in runner.watched(batches):
            runner.start(batch, *place)
            result = runner.engine.run(*runner.arguments(batch, index, *self.step.grad_mode()))
            if runner.starves:
                runner.pace(result)
            done = result.value()
            output = done["output"]
            self._warn_of_nothing(output)
            if self.indices:
                if not self._keeps_indices:
                    run.predicted_indices[-1].clear()  # those of the current batch are enough
                run.predicted_indices[-1].append(self.indices[batch.index])
            self._done += 1
            hooks.both(_STAGE.batch_end, output, as_left(batch.host, done), batch.index, *place)
            hooks.callbacks("on_step_dispatched", batch.index)
            if keep:
                yield output
