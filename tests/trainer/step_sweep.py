"""Train a step pattern compiled and in eager PyTorch, and say how they differ."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import re
import warnings
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer.step_patterns import BATCHES, CLASSES, FEATURES, PATTERNS, ROWS

import systolic as L

EPOCHS = 2
_KEPT = ("last", "largest", "losses", "recent", "total", "count", "counts", "predictions", "best")


@dataclass
class Outcome:
    """What one run computed, printed and kept."""

    losses: list[float]
    metrics: list[dict[str, float]]
    state: dict[str, torch.Tensor]
    output: str
    kept: dict[str, Any]
    programs: int


class Recorder(L.Callback):
    def __init__(self) -> None:
        self.losses: list[float] = []
        self.metrics: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        self.losses.append(float(outputs["loss"]) if outputs is not None and "loss" in outputs else float("nan"))
        self.metrics.append({name: float(value) for name, value in trainer.callback_metrics.items()})


def train(name: str, compiled: bool, devices: int = 1, precision: Any = "32-true", processes: int = 1) -> Outcome:
    """Two epochs of six batches; the same numbers of Python and NumPy are drawn in every run.

    Args:
        name: of the pattern.
        compiled: or in eager PyTorch.
        devices: of this process.
        precision: of the Trainer.
        processes: how many train together.
    """
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is old in PyTorch
        module = PATTERNS[name]()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS * BATCHES, FEATURES, generator=generator)
    data = TensorDataset(x, torch.randint(0, CLASSES, (len(x),), generator=generator))
    output, recorder, logger = io.StringIO(), Recorder(), logging.getLogger("steps")
    handler = logging.StreamHandler(output)
    options: dict[str, Any] = {"devices": devices} if compiled else {"compile": False}
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=EPOCHS, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[recorder], precision=precision, **options,
    )  # fmt: skip
    random.seed(0)
    np.random.seed(0)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with contextlib.redirect_stdout(output), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of programs for each size, and of what libraries say of themselves
            trainer.fit(module, DataLoader(data, batch_size=ROWS // (devices * processes if compiled else 1)))
    finally:
        logger.removeHandler(handler)
    state = {key: value.detach().clone() for key, value in module.state_dict().items()}
    kept = {key: _plain(getattr(module, key)) for key in _KEPT if hasattr(module, key)}
    return Outcome(recorder.losses, recorder.metrics, state, output.getvalue(), kept, len(trainer.compiles))


def difference(eager: Outcome, compiled: Outcome) -> str:
    """What is not equal; empty where all is."""
    if not np.allclose(eager.losses, compiled.losses, rtol=1e-4, atol=1e-5, equal_nan=True):
        return f"losses {eager.losses} {compiled.losses}"
    for key, value in eager.state.items():
        # Adam and BatchNorm are not among the patterns: differences are those of the order of sums
        if not torch.allclose(value.to_dense(), compiled.state[key].to_dense(), rtol=1e-3, atol=1e-5):
            return f"state {key}"
    for step, (want, got) in enumerate(zip(eager.metrics, compiled.metrics, strict=True)):
        if want.keys() != got.keys() or not np.allclose([*want.values()], [got[k] for k in want], rtol=1e-3, atol=1e-4):
            return f"metrics of step {step}: {want} {got}"
    if _words(eager.output) != _words(compiled.output):
        return f"output {eager.output!r} {compiled.output!r}"
    return "" if _words(repr(eager.kept)) == _words(repr(compiled.kept)) else f"kept {eager.kept} {compiled.kept}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [np.asarray(one).tolist() for one in value] if isinstance(value, list | deque | np.ndarray) else value


def _words(text: str) -> list[str]:
    """Words with their numbers rounded; how a tensor came about is shown by eager PyTorch only."""
    shown = re.sub(r", grad_fn=<\w+>", "", text)
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}", shown).split()
