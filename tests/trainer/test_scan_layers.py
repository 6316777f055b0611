"""`Trainer(scan_layers=True)`: equal layers are one loop of the program, with the numbers of the program without it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from trainer.layered import MODELS, Module, made, words
from trainer.runs import Recorder, trainer

import systolic as L
from systolic.compiler.driver import _program
from systolic.compiler.driver._layer_scan import order_with_loops
from systolic.compiler.lowering import LayerLoop


Loops = list[tuple[str, int, int]]
"""Of each loop in a program: the pass, how many layers, and how many ops one of them has."""


@contextlib.contextmanager
def loops_of_programs() -> Iterator[Loops]:
    """The loops of the last program that is made inside the block."""
    found: Loops = []

    def noting(*arguments: Any) -> Any:
        order = order_with_loops(*arguments)
        loops = [step for step in order or [] if isinstance(step, LayerLoop)]
        found[:] = [("backward" if one.reverse else "forward", len(one.layers), len(one.layers[0])) for one in loops]
        return order

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_program, "order_with_loops", noting)
        yield found


def fitted(module: L.LightningModule, **options: Any) -> tuple[dict[str, torch.Tensor], Loops]:
    """The weights and losses after an epoch, and the loops of the step's program."""
    L.seed_everything(1)
    losses = Recorder()
    with warnings.catch_warnings(), loops_of_programs() as loops:
        warnings.filterwarnings("ignore", module="transformers")
        trainer(callbacks=[losses], **options).fit(module, words(options.get("devices", 1) * 4))
    found = {name: value.detach().clone() for name, value in module.state_dict().items()}
    return found | {"losses": torch.tensor(losses.losses)}, loops


def require_equal(received: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> None:
    """Equal to `tolerance` of each tensor's largest element; of a hundredth where it is smaller: keys' biases have no gradient."""
    for name, value in expected.items():
        atol = tolerance * max(float(value.abs().max()), 0.01) if value.is_floating_point() else 0.0
        torch.testing.assert_close(received[name], value, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


def passes(loops: Loops) -> list[tuple[str, int]]:
    """Of each loop the pass, and how many layers."""
    return [(direction, layers) for direction, layers, _ in loops]


BOTH = [("forward", 4), ("backward", 4)]
EXPECTED = dict.fromkeys(MODELS, BOTH) | {"encoder": [("forward", 3), ("backward", 3)]}
"""The first layer of PyTorch's encoder copies what lies batch first, and is left alone."""


@pytest.mark.tables
@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_without_the_loop(name: str, devices: int) -> None:
    if name in ("gpt", "bert"):
        pytest.importorskip("transformers")
    expected, none = fitted(made(name, 0.1), devices=devices)
    assert none == []
    received, loops = fitted(made(name, 0.1), devices=devices, scan_layers=True)
    assert passes(loops) == EXPECTED[name]
    require_equal(received, expected, 1e-6)


@pytest.mark.tables
@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_eager_pytorch(name: str) -> None:
    if name in ("gpt", "bert"):
        pytest.importorskip("transformers")
    expected, _ = fitted(made(name, 0.0), compile=False)
    received, loops = fitted(made(name, 0.0), scan_layers=True)
    assert passes(loops) == EXPECTED[name]
    require_equal(received, expected, 1e-5)
