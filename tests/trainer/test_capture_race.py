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
