"""A setting that changes between steps in which a list of notes grows as well, of which no step knows: the step notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, plain

Change = Callable[[Any], None]


def freeze(module: Any) -> None:
    module.inner.requires_grad_(module.current_epoch != 1)


def frozen_bias(module: Any) -> None:
    module.outer.bias.requires_grad = module.current_epoch == 0


def hook_on_a_gradient(module: Any) -> None:
    module.inner.weight.register_hook(lambda gradient: gradient * 0.5)


def hook_that_is_removed(module: Any) -> None:
    if module.current_epoch == 1:
        module.__dict__["handle"] = module.inner.weight.register_hook(lambda gradient: gradient * 0.5)
    else:
        module.__dict__.pop("handle").remove()


def hook_on_a_layer(module: Any) -> None:
    module.inner.register_forward_hook(lambda layer, args, output: output * 1.1)


def cleared_state(module: Any) -> None:
    module.optimizers(use_pl_optimizer=False).state.clear()


def loaded_state(module: Any) -> None:
    optimizer = module.optimizers(use_pl_optimizer=False)
    optimizer.load_state_dict(torch.optim.Adam(module.parameters(), 3e-3).state_dict())


def another_mode(module: Any) -> None:
    module.inner.eval()
    module.norm.training = module.current_epoch == 1


def gradients_that_are_given(module: Any) -> None:
    for p in module.parameters():
        p.grad = torch.ones_like(p)


@pytest.mark.thin(6)
@pytest.mark.parametrize(
    "change",
    [
        freeze, frozen_bias, hook_on_a_gradient, hook_that_is_removed, hook_on_a_layer, cleared_state, loaded_state, another_mode,
        gradients_that_are_given,
    ],
)  # fmt: skip
@pytest.mark.parametrize("accumulated", [1, 3])
def test_it_is_noticed(change: Change, accumulated: int) -> None:
    def begin(module: Any) -> None:
        module.trainer.accumulate_grad_batches = accumulated
        if module.current_epoch:
            change(module)

    def note(module: Any, outputs: Any, batch: Any, i: int) -> None:
        module.seen.append(float(outputs["loss"]))

    methods = {
        "on_train_epoch_start": begin,
        "on_train_batch_end": note,
        "configure_optimizers": lambda module: torch.optim.Adam(module.parameters(), 1e-2),
    }
    beside_lightning(methods, lambda module: plain([module.seen, module.state_dict()]), epochs=3, advice=False)
