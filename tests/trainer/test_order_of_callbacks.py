"""Callbacks that tune come first, those that save checkpoints last: `trainer.callbacks`, and the order of their hooks."""

from __future__ import annotations

from typing import Any

import pytest
from as_lightning import Package, require_same
from three_ways import loader


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_tuners_first_and_checkpoints_last() -> None:
    def scenario(package: Package) -> Any:
        callbacks, called = package.L.callbacks, []

        class First(callbacks.Callback):
            def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
                called.append("First")

        class Finder(callbacks.LearningRateFinder):
            def on_fit_start(self, *args: Any) -> None:
                called.append("Finder")

        class Sizes(callbacks.BatchSizeFinder):
            def setup(self, *args: Any, **kwargs: Any) -> None:
                """Nothing."""

            def on_fit_start(self, *args: Any) -> None:
                called.append("Sizes")

        class Saver(callbacks.ModelCheckpoint):
            def on_fit_start(self, *args: Any) -> None:
                called.append("Saver")

        module = package.module(configure_callbacks=lambda module: [Finder(), callbacks.EarlyStopping("loss")])
        given = [Saver(package.path), First(), Sizes()]
        trainer = package.trainer(callbacks=given, enable_checkpointing=True, max_epochs=0)
        before = [type(one).__name__ for one in trainer.callbacks]
        trainer.fit(module, loader(16, 8))
        return before, [type(one).__name__ for one in trainer.callbacks], called

    _, _, called = require_same(scenario)
    assert called == ["Sizes", "Finder", "First", "Saver"]
