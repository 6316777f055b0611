"""`Trainer(scan_layers=True)`: equal layers are one loop of the program, with the numbers of the program without it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from program_text import Programs
from torch import nn
from trainer.layered import MODELS, WIDTH, Module, blocks, made, words
from trainer.runs import Recorder, trainer

import systolic as L
from systolic.compiler.driver import _step_function
from systolic.compiler.driver._layer_scan import order_with_loops
from systolic.compiler.lowering import LayerLoop
from systolic.strategies import ModelParallel

Loops = list[LayerLoop]


@contextlib.contextmanager
def loops_of_programs() -> Iterator[Loops]:
    """The loops of the last program that is made inside the block."""
    found: Loops = []

    def noting(*arguments: Any) -> Any:
        order = order_with_loops(*arguments)
        found[:] = [step for step in order or [] if isinstance(step, LayerLoop)]
        return order

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_step_function, "order_with_loops", noting)
        yield found


def fitted(module: L.LightningModule, **options: Any) -> tuple[dict[str, torch.Tensor], Loops]:
    """The weights and losses after an epoch, and the loops of the step's program."""
    L.seed_everything(1)
    losses = Recorder()
    with warnings.catch_warnings(), loops_of_programs() as loops:
        warnings.filterwarnings("ignore", module="transformers")
        # a callback between steps would end dispatching several of them
        callbacks = [] if "steps_per_dispatch" in options else [losses]
        trainer(callbacks=callbacks, **options).fit(module, words(options.get("devices", 1) * 4))
    found = {name: value.detach().clone() for name, value in module.state_dict().items()}
    return found | ({"losses": torch.tensor(losses.losses)} if callbacks else {}), loops


def require_equal(received: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> None:
    """Equal to `tolerance` of each tensor's largest element; of a hundredth where it is smaller: keys' biases have no gradient."""
    for name, value in expected.items():
        atol = tolerance * max(float(value.abs().max()), 0.01) if value.is_floating_point() else 0.0
        torch.testing.assert_close(received[name], value, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


def passes(loops: Loops) -> list[tuple[str, int]]:
    """Of each loop the pass, and how many layers."""
    return [("backward" if loop.reverse else "forward", len(loop.layers)) for loop in loops]


BOTH = [("forward", 4), ("backward", 4)]
EXPECTED = dict.fromkeys(MODELS, BOTH) | {"encoder": [("forward", 3), ("backward", 3)]}
"""The first layer of PyTorch's encoder copies what lies batch first, and is left alone."""


@pytest.mark.tables(every=4)
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


@pytest.mark.tables(every=3)
@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_eager_pytorch(name: str) -> None:
    if name in ("gpt", "bert"):
        pytest.importorskip("transformers")
    expected, _ = fitted(made(name, 0.0), compile=False)
    received, loops = fitted(made(name, 0.0), scan_layers=True)
    assert passes(loops) == EXPECTED[name]
    require_equal(received, expected, 1e-5)


def test_a_short_run() -> None:
    expected, none = fitted(made("blocks", 0.2))
    received, loops = fitted(made("blocks", 0.2), scan_layers=True)
    assert (none, passes(loops)) == ([], BOTH)
    require_equal(received, expected, 1e-6)


SPLIT = {"net.1.*.wide.1": "colwise", "net.1.*.wide.3": "rowwise"}


@pytest.mark.tables(every=4)
@pytest.mark.parametrize(
    "options",
    [
        {"remat": "full"},
        {"remat": "dots"},
        {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5},
        {"steps_per_dispatch": 2},
        {"devices": 8, "strategy": "fsdp"},
        {"devices": 8, "strategy": "fsdp", "remat": "full"},
        {"devices": 8, "strategy": ModelParallel(data=4, fsdp=1, tensor=2, plan=SPLIT)},
    ],
    ids=["full", "dots", "accumulation", "dispatch", "fsdp", "fsdp full", "tensors split"],
)
def test_together_with(options: dict[str, Any]) -> None:
    expected, _ = fitted(made("blocks", 0.2), **options)
    received, loops = fitted(made("blocks", 0.2), scan_layers=True, **options)
    assert passes(loops) == BOTH
    require_equal(received, expected, 1e-6)


@pytest.mark.tables(every=2)
@pytest.mark.parametrize("name", ["blocks", "gpt"])
def test_mixed_precision(name: str) -> None:
    if name == "gpt":
        pytest.importorskip("transformers")
    expected, _ = fitted(made(name, 0.2), precision="bf16-mixed")
    received, loops = fitted(made(name, 0.2), precision="bf16-mixed", scan_layers=True)
    assert passes(loops) == BOTH
    require_equal(received, expected, 2e-2)
    forward = loops[0].layers[loops[0].model]
    handed = [forward[position].meta["val"] for position in loops[0].results]
    # GPT-2's activation computes in float32, from a product of half the bytes; no mask is kept, which the backward draws again
    assert not any(value.dtype == torch.float32 and value.shape[-1] > WIDTH for value in handed)


class Widths(nn.Module):
    """Layers of which some differ from those beside them."""

    def __init__(self, changed: dict[int, nn.Module]) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.layers = nn.ModuleList(changed.get(number, nn.Sequential(nn.Linear(16, 16), nn.Tanh())) for number in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for number, layer in enumerate(self.layers):
            x = x + layer(x) if isinstance(layer, nn.Linear) else layer(x)
            x = x * 2 if number == self.doubled else x
        return x

    doubled = -1


def widths(changed: dict[int, nn.Module], doubled: int = -1) -> L.LightningModule:
    net = Widths(changed)
    net.doubled = doubled
    return Module(net, lambda net, batch: net(batch[0] / 32).square().mean())


OTHERS = {
    "activation": (lambda: widths({0: nn.Sequential(nn.Linear(16, 16), nn.ReLU())}), [5]),
    "width": (lambda: widths({5: nn.Sequential(nn.Linear(16, 24), nn.Tanh())}), [5]),
    "around it": (lambda: widths({1: nn.Linear(16, 16)}), [4]),
    "between them": (lambda: widths({}, doubled=2), [3, 3]),
    "nothing but its modules": (lambda: widths({0: nn.Sequential(nn.Linear(16, 16), nn.Identity(), nn.Tanh())}), [6]),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.thin(3)
def test_layers_that_differ_are_left_alone(name: str) -> None:
    make, layers = OTHERS[name]
    torch.manual_seed(0)
    expected, _ = fitted(make())
    torch.manual_seed(0)
    received, loops = fitted(make(), scan_layers=True)
    assert [size for direction, size in passes(loops) if direction == "forward"] == layers
    require_equal(received, expected, 1e-6)


def test_no_layers_are_said() -> None:
    module = Module(nn.Linear(8, 1), lambda net, batch: net(batch[0] / 32).square().mean())
    with pytest.warns(UserWarning, match="scan_layers=True found no layers"):
        fitted(module, scan_layers=True)


def test_eager_runs_say_that_it_has_no_effect() -> None:
    with pytest.warns(UserWarning, match="`scan_layers` has no effect there"):
        trainer(compile=False, scan_layers=True)


@pytest.mark.slow
def test_a_program_grows_little_with_its_layers() -> None:
    sizes: dict[bool, list[int]] = {}
    for scan in (False, True):
        for layers in (3, 5):
            programs = Programs()
            trainer(callbacks=[programs], scan_layers=scan, max_steps=1).fit(blocks(0.1, layers), words())
            sizes.setdefault(scan, []).append(len(programs.text.splitlines()))
    grown = {scan: larger - smaller for scan, (smaller, larger) in sizes.items()}
    # what is left are the weights that are stacked, and the optimizer
    assert grown[True] < 0.5 * grown[False]
