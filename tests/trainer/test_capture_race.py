"""A dataset that draws random numbers, in the background, while the step is captured."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from trainer.runs import Line, Recorder, trainer

from systolic.callbacks import ProgressBar


def by_python() -> float:
    return random.random() + random.gauss(0, 1)


def by_numpy() -> float:
    return float(np.random.rand() + np.random.permutation(3)[0])


def by_torch() -> float:
    return torch.rand(()).item()


def by_forked_torch() -> float:
    with torch.random.fork_rng():
        return torch.randn(()).item()


def by_reseeding() -> float:
    state = torch.get_rng_state()
    torch.manual_seed(7)
    drawn = torch.rand(()).item()
    torch.set_rng_state(state)
    return drawn


class Augmented(Dataset):
    """Samples with noise from one of the global generators."""

    def __init__(self, noise: Callable[[], float], seconds: float) -> None:
        self.noise = noise
        self.seconds = seconds

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(self.seconds)
        noise = self.noise()
        return {"x": torch.full((4,), index / 24 + noise), "y": torch.tensor([noise])}


def outcome(data: Augmented, workers: int, **options: Any) -> tuple[list[float], list[str]]:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    recorder = Recorder()
    run = trainer(callbacks=[recorder], **options)
    module = Line()
    loader = DataLoader(data, batch_size=4, num_workers=workers, generator=torch.Generator().manual_seed(2))
    run.fit(module, loader)
    reasons = [] if options.get("compile") is False else [compile.reason for compile in run.compiles]
    return recorder.losses, reasons


@pytest.mark.parametrize("noise", [by_python, by_numpy, by_torch, by_forked_torch, by_reseeding])
@pytest.mark.parametrize(
    ("workers", "seconds", "prefetch"), [(0, 0.0, 400), (0, 0.02, 2), (2, 0.0, 2)], ids=["deep", "slow", "workers"]
)
def test_a_dataset_that_draws_does_not_disturb_the_capture(
    noise: Callable[[], float], workers: int, seconds: float, prefetch: int
) -> None:
    data = Augmented(noise, seconds)
    losses, reasons = outcome(data, workers, prefetch_batches=prefetch)
    eager, _ = outcome(data, workers, compile=False)
    assert reasons == ["first call"]
    assert losses == pytest.approx(eager, rel=1e-5)


def test_a_thread_of_a_logger_that_computes_meanwhile_sees_no_difference() -> None:
    stop, seen = threading.Event(), []
    layer = torch.nn.Linear(4, 4)
    x = torch.ones(2, 4)
    expected = layer(x).square().sum().item()

    def compute() -> None:
        while not stop.is_set():
            seen.append(layer(x).square().sum().item() == expected and not torch.compiler.is_compiling())

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        losses, reasons = outcome(Augmented(by_python, 0.0), 0)
    finally:
        stop.set()
        thread.join()
    assert reasons == ["first call"]
    assert losses == pytest.approx(outcome(Augmented(by_python, 0.0), 0, compile=False)[0], rel=1e-5)
    assert len(seen) > 10
    assert all(seen)


class Keeps(Line):
    """Keeps in one list what its hook in the loader's thread sees, and what its step computes."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = []

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.kept.append(batch["x"])
        return batch

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        if len(self.kept) > 100:  # it looks at the list, so that a capture walks it
            return loss * 2
        return loss


class GivesTime(ProgressBar):
    """While a step is captured the loader's thread has time enough to give the module other tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[int] = []

    def on_trace_start(self, trainer: Any, description: str) -> None:
        before = len(trainer.lightning_module.kept)
        time.sleep(0.3)
        self.given.append(len(trainer.lightning_module.kept) - before)


def test_a_hook_that_keeps_batches_while_the_step_is_captured() -> None:
    data = Augmented(lambda: 0.25, 0.02)
    # the fourth batch, from which on a thread reads ahead, has another shape: the step is captured again meanwhile
    order = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13], [14, 15, 16, 17], [18, 19, 20, 21], [22, 23, 0, 1]]
    losses, bar = [], GivesTime()
    for options in ({"enable_progress_bar": True}, {"compile": False}):
        torch.manual_seed(1)
        module, recorder = Keeps(), Recorder()
        callbacks = [recorder, bar] if options.get("enable_progress_bar") else [recorder]
        trainer(**options, prefetch_batches=1, callbacks=callbacks, recompile_limit=20, advice=False).fit(
            module, DataLoader(data, batch_sampler=order)
        )
        assert len(module.kept) == len(order)
        losses.append(recorder.losses)
    assert len(bar.given) > 1
    assert not any(bar.given)  # the hook waits until the capture is over
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
