"""Training loops that can be run an epoch at a time, so that several are timed in turn."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from jax_reference import REFERENCES, JaxTraining, TextTraining
from models import BATCH, MODELS, data_of, lightning_module, loader_of, loss_of, optimizer_of


class Stepwise:
    """A `fit` that pauses before each epoch until it is told to go on."""

    def __init__(self, fit: Callable[[Any], None], callback_class: type) -> None:
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        outer = self

        class Pause(callback_class):  # type: ignore[misc]
            def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
                outer._go.acquire()
                outer._started = time.perf_counter()

            def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
                outer.seconds = time.perf_counter() - outer._started
                outer._done.release()

        def run() -> None:
            try:
                fit(Pause())
            except BaseException as error:
                self._error = error
            self._done.release()

        threading.Thread(target=run, daemon=True).start()

    def epoch(self) -> float:
        self._go.release()
        self._done.acquire()
        if self._error is not None:
            raise self._error
        return self.seconds


def fit_of(package: str, *, inductor: bool = False, **options: Any) -> Callable[[str, int], Stepwise]:
    """`fit` of systolic or of lightning: the same module, loader and arguments, and `options` for the Trainer.

    Args:
        package: the name of the library.
        inductor: whether the network is compiled by `torch.compile`.
        options: further arguments of the Trainer.
    """

    def contender(name: str, batches: int) -> Stepwise:
        library = importlib.import_module(package)
        module, loader = lightning_module(library, name), loader_of(name, batches)
        if inductor:
            module.model.compile()
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}

        def fit(pause: Any) -> None:
            trainer = library.Trainer(accelerator="cpu", devices=1, max_epochs=10_000, callbacks=[pause], **quiet, **options)
            trainer.fit(module, loader)

        return Stepwise(fit, library.Callback)

    return contender


class Timed:
    """A plain function per epoch."""

    def __init__(self, epoch: Callable[[], None]) -> None:
        self._epoch = epoch

    def epoch(self) -> float:
        started = time.perf_counter()
        self._epoch()
        return time.perf_counter() - started


def eager_loop(name: str, batches: int) -> Timed:
    model, loader = MODELS[name](), loader_of(name, batches)
    optimizer = optimizer_of(name, model)

    def epoch() -> None:
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()

    return Timed(epoch)


def jax_loop(name: str, batches: int) -> Timed:
    x, y = data_of(name, batches)
    training = JaxTraining if name in REFERENCES else TextTraining
    return Timed(training(name, x.numpy(), y.numpy(), BATCH[name]).epoch)


CONTENDERS: dict[str, Callable[[str, int], Any]] = {
    "systolic": fit_of("systolic"),
    "jax": jax_loop,
    "lightning": fit_of("lightning"),
    "compiled": fit_of("lightning", inductor=True),
    "eager": eager_loop,
}
GROUP = 20
GROUPED = {"grouped": fit_of("systolic", steps_per_dispatch=GROUP)}
"""For steps that are short enough to pay; the other models' take longer than a dispatch by far."""

torch.manual_seed(0)
