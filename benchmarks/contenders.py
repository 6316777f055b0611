"""Training loops, each for a process of its own that runs an epoch when it is told to (`turns.Contender`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from jax_reference import REFERENCES, JaxTraining, TextTraining
from models import BATCH, MODELS, data_of, lightning_module, loader_of, loss_of, optimizer_of
from turns import fit_in_turns, loop_in_turns


def fit_of(package: str, *, inductor: bool = False, **options: Any) -> Callable[[str, int], None]:
    """`fit` of systolic or of lightning: the same module, loader and arguments, and `options` for the Trainer.

    Args:
        package: the name of the library.
        inductor: whether the network is compiled by `torch.compile`.
        options: further arguments of the Trainer.
    """

    def contend(name: str, batches: int) -> None:
        library = importlib.import_module(package)
        module, loader = lightning_module(library, name), loader_of(name, batches)
        if inductor:
            module.model.compile()
        fit_in_turns(library, module, loader, accelerator="cpu", **options)

    return contend


def eager_loop(name: str, batches: int) -> None:
    model, loader = MODELS[name](), loader_of(name, batches)
    optimizer = optimizer_of(name, model)

    def epoch() -> None:
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()

    loop_in_turns(epoch, batches)


def jax_loop(name: str, batches: int) -> None:
    x, y = data_of(name, batches)
    training = JaxTraining if name in REFERENCES else TextTraining
    loop_in_turns(training(name, x.numpy(), y.numpy(), BATCH[name]).epoch, batches)


CONTENDERS: dict[str, Callable[[str, int], None]] = {
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
