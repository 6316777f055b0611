"""Gradients that code looks at after their step: those of that step, as under Lightning; no others are kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
import torch.nn.functional as F
from beside_lightning import beside_lightning, loader, module_of, plain, trainer_of
from lightning.pytorch.utilities import grad_norm
from torch import nn

import systolic

Methods = dict[str, Callable[..., Any]]


def _norms(module: nn.Module) -> list[Any]:
    return [None if p.grad is None else float(p.grad.norm()) for p in module.parameters()]


def _note(module: Any, *_: Any) -> None:
    module.seen.append(_norms(module))


def _note_in_a_loop(module: Any, *_: Any) -> None:
    module.seen.append([p.grad.abs().max().item() for group in module.optimizers().param_groups for p in group["params"]])


def _note_by_a_method(module: Any, *_: Any) -> None:
    module.seen.append(module.largest())


def _largest(module: Any) -> float:
    return max(float(getattr(p, "grad").norm()) for p in module.parameters())  # noqa: B009


def _note_of_the_library(module: Any, *_: Any) -> None:
    norms = grad_norm(module, 2)
    module.seen.append({name: float(norm) for name, norm in norms.items()})


def _log_before_they_are_cleared(module: Any, optimizer: Any) -> None:
    del optimizer
    if module.inner.weight.grad is not None:
        module.log("before", module.inner.weight.grad.norm())


def _log_in_the_step(module: Any, batch: Any, i: int) -> torch.Tensor:
    if module.inner.weight.grad is not None:
        module.log("last", module.inner.weight.grad.norm())
    return module.loss(batch)


def _descend_by_signs(module: Any, *_: Any) -> None:
    with torch.no_grad():
        for p in module.parameters():
            p -= 0.01 * p.grad.sign()


def _freeze(module: Any) -> None:
    for p in module.inner.parameters():
        p.requires_grad = module.current_epoch != 1


_READERS: dict[str, Methods] = {
    "batch end": {"on_train_batch_end": _note},
    "batch start": {"on_train_batch_start": _note},
    "epoch end": {"on_train_epoch_end": _note},
    "fit end": {"on_fit_end": _note},
    "validation": {"on_validation_end": _note, "validation_step": lambda module, batch, i: None},
    "loop": {"on_train_batch_end": _note_in_a_loop},
    "method": {"on_train_batch_end": _note_by_a_method, "largest": _largest},
    "library": {"on_train_batch_end": _note_of_the_library},
    "before zero_grad": {"on_before_zero_grad": _log_before_they_are_cleared},
    "step": {"training_step": _log_in_the_step},
    "used": {"on_train_batch_end": _descend_by_signs},
    "frozen": {"on_train_batch_end": _note, "on_train_epoch_start": _freeze},
    "cleared": {"on_train_batch_end": _note, "on_train_batch_start": lambda module, batch, i: module.zero_grad()},
}


@pytest.mark.parametrize("methods", _READERS.values(), ids=_READERS.keys())
def test_they_are_there(methods: Methods) -> None:
    beside_lightning(methods, lambda module: plain(module.seen), epochs=3)


def test_on_four_cores() -> None:
    beside_lightning({"on_train_batch_end": _note}, lambda module: plain(module.seen), devices=4)


def test_a_callback_that_looks_at_them() -> None:
    seen: dict[str, list[Any]] = {}
    for library in (lightning, systolic):

        class Look(library.Callback):
            def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
                seen.setdefault(library.__name__, []).extend(_norms(pl_module))  # noqa: B023

        trainer = trainer_of(library, callbacks=[Look()], accumulate_grad_batches=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if library is lightning else "error")
            trainer.fit(module_of(library, {}, lambda module: None), loader(96, 1))
    torch.testing.assert_close(torch.tensor(seen["systolic"]), torch.tensor(seen["lightning"]), rtol=2e-5, atol=2e-6)


def _a_penalty(module: Any, batch: Any, i: int) -> torch.Tensor:
    x = batch[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(module(x), batch[1]), x, create_graph=True)
    return module.loss(batch) + gradient.pow(2).sum()


def _log_at_once(module: Any, *_: Any) -> None:
    module.log("norm", sum(p.grad.norm() for p in module.parameters()))


_OTHERS: dict[str, Methods] = {
    "nothing": {},
    "torch.autograd.grad": {"training_step": _a_penalty},
    "at once": {"on_after_backward": _log_at_once, "on_train_batch_end": lambda module, *_: module.zero_grad()},
}


@pytest.mark.parametrize("methods", _OTHERS.values(), ids=_OTHERS.keys())
def test_no_others_are_kept(methods: Methods) -> None:
    """As a part of the state they take as much memory as the parameters, and the first step another program."""
    module = beside_lightning(methods, lambda module: [])
    assert len(module.trainer.compiles) == 1
    assert _norms(module) == [None] * 6


class _Halving(torch.optim.SGD):
    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            parameter.grad.mul_(0.5)


def _halving(module: Any) -> torch.optim.Optimizer:
    return _Halving(module.parameters(), 0.05)


def _never(module: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    optimizer.zero_grad = lambda set_to_none=True: None
    return optimizer


@pytest.mark.parametrize("configure_optimizers", [_halving, _never])
def test_an_optimizer_clears_them_its_own_way(configure_optimizers: Callable[..., Any]) -> None:
    module = beside_lightning({"configure_optimizers": configure_optimizers}, _norms)
    assert len(module.trainer.compiles) == 2
