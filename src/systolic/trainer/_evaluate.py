"""Validation and test loops."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from ..metrics import Results
from ._feed import feed
from ._hook_changes import call_on_batch
from ._modes import evaluation_mode
from ._padding import padder_for
from ._step_engine import StepEngine
from ._steps import EvaluationStep


class EvaluationLoop:
    """Run every evaluation loader once, in eval mode, without gradients."""

    def __init__(self, trainer: Any, stage: str) -> None:
        self.trainer = trainer
        self.stage = stage
        self.step = EvaluationStep(trainer, trainer.lightning_module, trainer._hooks, stage)
        self.results = Results()
        self.engine: StepEngine = trainer._make_engine(self.step, stage, self.results)
        self._seen: Counter[int] = Counter()

    def run(self) -> list[dict[str, float]]:
        """Evaluate; returns the reduced values, one dict a loader."""
        trainer, hooks, name = self.trainer, self.trainer._hooks, f"on_{self.stage}"
        loaders, limits = trainer._evaluation_loaders(self.stage)
        if not any(limits):
            return []
        with self.evaluating(), trainer._collecting(self.stage, self.results, len(loaders)):
            hooks.both(f"{name}_start")
            hooks.both(f"{name}_epoch_start")
            for index, (loader, limit) in enumerate(zip(loaders, limits, strict=True)):
                self._run_loader(index, loader, limit)
            values = trainer._reporting.evaluation_end(self.results, f"{name}_epoch_end", len(loaders))
            hooks.both(f"{name}_end")
        return values

    def _run_loader(self, index: int, loader: Any, limit: int | float) -> None:
        trainer, hooks, name = self.trainer, self.trainer._hooks, f"on_{self.stage}"
        starts, ends = hooks.anybody(f"{name}_batch_start"), hooks.anybody(f"{name}_batch_end")
        self.step.dataloader_idx = trainer._evaluated_loader = index
        batches = feed(
            loader,
            trainer._placement,
            transform=trainer._before_transfer(),
            precision=trainer._precision,
            pad=padder_for(trainer, loader),
            depth=trainer.prefetch_batches,
            dataloader_idx=index,
            limit=limit,
            shown=starts or ends,
        )
        for batch in trainer._observed(batches, self.stage):
            if starts:
                call_on_batch(hooks, f"{name}_batch_start", batch, trainer._placement, batch.index, index)
            numbers = {"batch_idx": batch.index, "epoch": trainer._current_epoch, "global_step": trainer._global_step}
            key, rebuild = self.step.statics.enter(batch.spec, batch.statics)
            result = self.engine.run(batch.leaves, (key, index), rebuild, numbers)
            trainer._throttle(result)
            trainer._reporting.dispatched(result, self.results, False)
            if ends:
                hooks.both(f"{name}_batch_end", result.value()["output"], batch.host, batch.index, index)
            hooks.callbacks("on_step_dispatched", batch.index)
            if trainer.loggers:
                trainer._reporting.evaluation_step(self.results, result, self._seen[index])
            self._seen[index] += not trainer.sanity_checking

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Eval mode without gradients inside."""
        # a compiled step has no autograd in either mode
        eager = self.trainer._placement is None and self.trainer.inference_mode
        with evaluation_mode(self.trainer, self.stage), torch.inference_mode() if eager else torch.no_grad():
            yield
