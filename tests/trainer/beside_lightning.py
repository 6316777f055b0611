"""One module with the same methods under Lightning and under systolic, and what it holds afterwards."""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import lightning
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic

Method = Callable[..., Any]


def module_of(library: Any, methods: Mapping[str, Method], prepare: Callable[[Any], None]) -> Any:
    """A small classifier, with methods of a test's."""

    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.inner, self.norm, self.outer = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)
            self.seen: list[Any] = []
            prepare(self)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.outer(self.norm(self.inner(x)))

        def loss(self, batch: Any) -> torch.Tensor:
            return F.cross_entropy(self(batch[0]), batch[1])

        def training_step(self, batch: Any, i: int) -> torch.Tensor:
            return self.loss(batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    for name, method in methods.items():
        setattr(Module, name, method)
    return Module()


def loader(count: int, seed: int, batch_size: int = 16) -> DataLoader[Any]:
    """Batches of rows of four numbers, with classes."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(count, 4, generator=generator), torch.randint(0, 3, (count,), generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size)


def trainer_of(library: Any, **options: Any) -> Any:
    """A Trainer on the CPU, of one epoch and one core if not told otherwise, that shows and writes nothing."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    return library.Trainer(**{"accelerator": "cpu", "devices": 1, "max_epochs": 1, **quiet, **options})


def beside_lightning(
    methods: Mapping[str, Method],
    held: Callable[[Any], Any],
    *,
    prepare: Callable[[Any], None] = lambda module: None,
    devices: int = 1,
    epochs: int = 2,
    data: Callable[[int, int, int], DataLoader[Any]] = loader,
    **options: Any,
) -> Any:
    """Fit under both, and require that both hold the same afterwards; returns the module that systolic fitted.

    Args:
        methods: of the module, by name.
        held: what to compare of a module.
        prepare: is called at the end of the module's constructor.
        devices: of systolic's Trainer.
        epochs: how many.
        data: makes a loader of so many rows, with a seed and the rows of a batch.
        options: more arguments of systolic's Trainer.
    """
    found: list[Any] = []
    for library in (lightning, systolic):
        module = module_of(library, methods, prepare)
        own = {"devices": devices, **options} if library is systolic else {}
        trainer = trainer_of(library, max_epochs=epochs, **own)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if library is lightning else "error")  # Lightning's advice on loaders
            each = 16 // devices if library is systolic else 16  # of a core; Lightning gets the same global batch
            trainer.fit(module, data(48, 1, each), data(36, 2, each) if "validation_step" in methods else None)
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        weights = [p.detach().double().sum().item() for p in module.parameters()]
        found.append((held(module), metrics, weights, module))
    theirs, ours = found
    require_equal(ours[:3], theirs[:3])
    return ours[3]


def plain(value: Any) -> Any:
    """A value as nested lists and dicts of numbers and text: of any other object its attributes."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().tolist()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple | deque):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(one) for one in value)
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, str | int | float | bool | None):
        return value
    slots = [name for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)]
    return plain({**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in slots}})


def require_equal(ours: Any, theirs: Any) -> None:
    """Require the same structure, text and whole numbers, and other numbers that differ by rounding only."""
    if isinstance(theirs, list | tuple):
        assert isinstance(ours, list | tuple)
        assert len(ours) == len(theirs), f"{ours} for {theirs}"
        for one, other in zip(ours, theirs, strict=True):
            require_equal(one, other)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name, other in theirs.items():
            require_equal(ours[name], other)
    elif isinstance(theirs, float):
        assert type(ours) is float
        assert math.isclose(ours, theirs, rel_tol=2e-5, abs_tol=2e-6) or (math.isnan(ours) and math.isnan(theirs)), (
            f"{ours} for {theirs}"
        )
        # a rounded number has no more digits than under Lightning
        if len(repr(theirs)) < 8:
            assert len(repr(ours)) < 8, f"{ours} for {theirs}"
    else:
        assert type(ours) is type(theirs)
        assert ours == theirs, f"{ours!r} for {theirs!r}"
