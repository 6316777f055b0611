"""Validation and test loops."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ...data import set_epoch, sharing_of
from ...metrics import Results
from .._common_start import share_generators
from .._indexed_hooks import require_index_as_needed
from .._left_batches import as_left
from .._looked_at import depth_for
from .._modes import evaluation_mode
from .._padding import padder_for
from .._stage import Stage
from .._steps import EvaluationStep
from ._feed import feed
from ._joint import in_step
from ._runner import BatchRunner
from ._together import Together

if TYPE_CHECKING:
    from .._run import Run


class EvaluationLoop:
    """Run every evaluation loader once, in eval mode, without gradients."""

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run = run
        self.stage = stage
        self.results = Results()
        self.step = EvaluationStep(run, stage, self.results)
        self.runner = BatchRunner(run, self.step, stage)
        self.engine = self.runner.engine
        self.together = Together(run)
        self._seen: Counter[int] = Counter()

    def run(self) -> list[dict[str, float]]:
        """Evaluate; returns the reduced values, one dict a loader."""
        run, stage = self._run, self.stage
        loaders, limits = run.evaluation_loaders(stage)
        if not any(limits):
            return []
        require_index_as_needed(run.module, stage, len(loaders) > 1)
        seen, before = self._seen.copy(), self._seen.total()
        with self.begun(len(loaders)):
            self.runner.begins()
            loaders, limits = run.evaluation_loaders(stage)  # a finder of batch sizes has them made again in the first hooks
            for index, (loader, limit) in enumerate(zip(loaders, limits, strict=True)):
                self._run_loader(index, loader, limit)
            values = run.reporting.evaluation_end(self.results, stage.epoch_end, len(loaders))
            run.progress.evaluated(self._seen.total() - before)
            if run.reporting.repeats:
                self._seen = seen
            run.hooks.both(stage.end)
        return values

    @contextlib.contextmanager
    def begun(self, loaders: int) -> Iterator[None]:
        """Inside, batches may be evaluated: in eval mode, without gradients, after the first hooks."""
        run, stage = self._run, self.stage
        # a compiled step has no autograd in either mode
        eager = run.placement is None and run.config.inference_mode
        with torch.inference_mode() if eager else torch.no_grad(), evaluation_mode(run, stage):
            shown = Stage.SANITY_CHECK if run.sanity_checking else stage
            with run.evaluating(shown, loaders), run.record.within(f"{stage.fn.value}: hooks, loaders, logging"):
                run.hooks.both(stage.start)
                run.hooks.both(stage.epoch_start)
                yield

    def _run_loader(self, index: int, loader: Any, limit: int | float) -> None:
        run, stage, config, hooks = self._run, self.stage, self._run.config, self._run.hooks
        engine, runner = self.engine, self.runner
        assert run.evaluated is not None, "an evaluation has begun"
        self.step.dataloader_idx = run.evaluated.current = index
        self.step.of_several = run.evaluated.count > 1
        place = (index,) if self.step.of_several else ()
        starts, ends = hooks.anybody(stage.batch_start), hooks.anybody(stage.batch_end)
        share_generators()
        set_epoch(loader, run.counters.epochs_processed)
        batches = feed(
            loader,
            run.placement,
            transform=run.before_transfer(),
            precision=config.numerics,
            pad=padder_for(run, loader),
            depth=depth_for(run, loader),
            dataloader_idx=index,
            limit=limit,
            shown=starts or ends,
            sharing=sharing_of(loader),
        )
        for batch in in_step(runner.watched(batches), run, loader):
            run.evaluated.sharing = batch.sharing
            if starts:
                runner.start(batch, *place)
            result = engine.run(*runner.arguments(batch, index, *self.step.grad_mode()))
            if run.is_shared:
                self.together.dispatched()
            if runner.starves:
                runner.pace(result)
            run.reporting.dispatched(result, self.results, False)
            if ends:
                done = result.value()
                hooks.both(stage.batch_end, done["output"], as_left(batch.host, done), batch.index, *place)
            hooks.callbacks("on_step_dispatched", batch.index)
            if not run.is_shared:
                run.signals.check()
            elif self.together.after_batch(run.signals.pending is not None):
                run.signals.check_together()
            if config.loggers:
                run.reporting.evaluation_step(self.results, result, self._seen[index])
            self._seen[index] += not run.sanity_checking
