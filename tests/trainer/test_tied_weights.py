"""Tied weights: one array, one gradient, one optimizer state; saved once, restored tied (F18, F19, F20)."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from trainer.runs import SILENT, Given, Recorder, trainer

import systolic as L

TOKENS = 11


class Tied(L.LightningModule):
    """Every way to tie: embedding and head, a block used twice, two layers, a list and a dict of the same parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, 8)
        block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.blocks = nn.ModuleList([block, nn.LayerNorm(8), block])
        self.layer_1, self.layer_2, self.layer_3 = nn.Linear(8, 6), nn.Linear(6, 6), nn.Linear(8, 6)
        self.back = nn.Linear(6, 8)
        self.scale = nn.Parameter(torch.ones(8))
        self.scales = nn.ParameterList([self.scale, self.scale])
        self.by_name = {"scale": self.scale}
        self.head = nn.Linear(8, TOKENS, bias=False)
        self.tie()

    def tie(self) -> None:
        self.head.weight = self.embed.weight
        self.layer_3.weight = self.layer_1.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) * self.scales[0] * self.scales[1] * self.by_name["scale"]
        for block in self.blocks:
            x = block(x)
        x = self.back(torch.relu(self.layer_2(self.layer_1(x)) + self.layer_3(x)))
        return self.head(x)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return F.cross_entropy(self(batch[0][:, :-1]).flatten(0, 1), batch[0][:, 1:].flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


TIES = [("embed.weight", "head.weight"), ("layer_1.weight", "layer_3.weight"), ("blocks.0.0.weight", "blocks.2.0.weight")]


def sequences() -> Given:
    generator = torch.Generator().manual_seed(1)
    return Given([(torch.randint(0, TOKENS, (8, 5), generator=generator),) for _ in range(4)])


def require_tied(module: Any) -> None:
    assert all(module.get_parameter(one) is module.get_parameter(other) for one, other in TIES)
    assert module.scales[0] is module.scales[1] is module.scale is module.by_name["scale"]


class Looks(L.Callback):
    """What is on the devices while training."""

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self.cells = [(module.get_parameter(a)._cell, module.get_parameter(b)._cell) for a, b in TIES]
        program = next(iter(trainer.run.engines.values()))._entries[0].program
        logged = trainer.run.train_results.state.totals.numel()
        self.elements = sum(buffer.array.size for buffer in program.buffers) - logged


def fitted(**options: Any) -> tuple[Tied, L.Trainer, Recorder, Looks]:
    torch.manual_seed(0)
    module, recorder, looks = Tied(), Recorder(), Looks()
    callbacks = [recorder] if options.get("compile") is False else [recorder, looks]
    run = trainer(**{"max_epochs": 3, "callbacks": callbacks, **options})
    run.fit(module, sequences())
    return module, run, recorder, looks


# promise 1: L#15878
def test_tied_weights_train_as_in_eager_pytorch(tmp_path: Path) -> None:
    module, run, recorder, looks = fitted()
    eager, other, wanted, _ = fitted(compile=False)
    assert recorder.losses == pytest.approx(wanted.losses, rel=1e-5)
    for (name, value), expected in zip(module.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6, msg=name)
    require_tied(module)

    # one array, one gradient, one optimizer state
    assert all(one is other for one, other in looks.cells)
    distinct = sum(p.numel() for p in module.parameters())
    steps = len(list(module.parameters()))
    assert looks.elements == 3 * distinct + steps
    assert len(run.optimizers[0].state) == len(other.optimizers[0].state) == steps

    # saved once, restored tied
    run.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    for one, two in TIES:
        assert saved["state_dict"][one].data_ptr() == saved["state_dict"][two].data_ptr()
    restored = Tied()
    again = trainer(max_epochs=3, compile=False)
    again.fit(restored, sequences(), ckpt_path=tmp_path / "a.ckpt")
    require_tied(restored)
    for name, value in module.state_dict().items():
        torch.testing.assert_close(restored.state_dict()[name], value)


@pytest.mark.parametrize("compile", [True, False])
def test_a_checkpoint_written_while_training_holds_ties_once(compile: bool, tmp_path: Path) -> None:
    class Saves(L.Callback):
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=True)
            torch.save(module.state_dict(), tmp_path / "own.pt")

    module = Tied()
    trainer(callbacks=[Saves()], compile=compile).fit(module, sequences())
    for path in ("a.ckpt", "own.pt"):
        saved = torch.load(tmp_path / path, weights_only=True)
        weights = saved.get("state_dict", saved)
        assert weights["embed.weight"].data_ptr() == weights["head.weight"].data_ptr()
        torch.testing.assert_close(weights["head.weight"], module.head.weight.detach())


def test_on_post_move_to_device_may_tie() -> None:
    calls = []

    class TiesLate(Tied):
        def tie(self) -> None:
            """Not yet."""

        def on_post_move_to_device(self) -> None:
            calls.append(self.trainer.state.fn)
            super().tie()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val", self(batch[0]).mean())

    module = TiesLate()
    run = trainer(compile=False)
    run.fit(module, sequences())
    assert calls == ["fit"]
    require_tied(module)
    assert len(run.optimizers[0].state) == len(list(module.parameters()))
    run.validate(module, sequences(), verbose=False)
    assert calls == ["fit", "validate"]


class Copies(Tied):
    """Unties what was tied, in a hook."""

    def setup(self, stage: str) -> None:
        self.head = copy.deepcopy(self.head)


def test_weights_that_a_hook_untied_are_named() -> None:
    with pytest.warns(UserWarning, match=r"'embed.weight', 'head.weight' were one tensor before the setup hooks") as caught:
        trainer(compile=False).fit(Copies(), sequences())
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "1 more to train and to save" in text
    assert "on_post_move_to_device`: self.head.weight = self.embed.weight" in text


def test_weights_that_the_hook_ties_again_are_not() -> None:
    class Again(Copies):
        def on_post_move_to_device(self) -> None:
            self.tie()

    module = Again()
    trainer(compile=False).fit(module, sequences())
    require_tied(module)


def test_weights_untied_after_the_setup_hooks_are_named() -> None:
    class Later(Tied):
        def on_fit_start(self) -> None:
            self.layer_3.weight = nn.Parameter(self.layer_3.weight.detach().clone())

    with pytest.warns(UserWarning, match="'layer_1.weight', 'layer_3.weight' were one tensor before configure_optimizers"):
        trainer(compile=False).fit(Later(), sequences())


def test_replaced_and_new_parameters_are_no_lost_ties() -> None:
    class Configured(Tied):
        def configure_model(self) -> None:
            self.embed = nn.Embedding(TOKENS, 8)
            self.head = nn.Linear(8, TOKENS, bias=False)
            self.extra = nn.Linear(2, 2)
            self.tie()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        L.Trainer(max_epochs=1, compile=False, **{**SILENT}).fit(Configured(), sequences())


@pytest.mark.parametrize("how", ["data", "parameter"])
def test_weights_tied_by_memory_only_are_refused(how: str) -> None:
    class ByMemory(Tied):
        def tie(self) -> None:
            if how == "data":
                self.head.weight.data = self.embed.weight.data
            else:
                self.head.weight = nn.Parameter(self.embed.weight.data)

    with pytest.raises(L.CaptureError, match=r"model.embed.weight and model.head.weight are two tensors over the same memory"):
        trainer().fit(ByMemory(), sequences())


def test_tensors_over_one_memory_that_no_step_writes_are_fine() -> None:
    weight = torch.ones(4, 4)
    one, other = nn.Linear(4, 4), nn.Linear(4, 4)
    one.weight, other.weight = nn.Parameter(weight, requires_grad=False), nn.Parameter(weight, requires_grad=False)
    both = L.jit(lambda x: one(x) + other(x))
    x = torch.randn(2, 4)
    torch.testing.assert_close(both(x), one(x) + other(x))


def test_parts_of_one_memory_that_do_not_overlap_are_fine() -> None:
    """`vector_to_parameters` leaves every parameter as a part of one vector."""
    layer, twin = nn.Linear(4, 4), nn.Linear(4, 4)
    twin.load_state_dict(layer.state_dict())
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(layer.parameters()).detach(), layer.parameters())

    def step(module: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        module(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (layer, twin)]
    compiled = L.jit(lambda x: step(layer, optimizers[0], x))
    for x in torch.randn(3, 2, 4):
        compiled(x)
        step(twin, optimizers[1], x)
    torch.testing.assert_close(layer.weight.detach().cpu(), twin.weight.detach())


def spectral(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of what is old in PyTorch
        return nn.utils.spectral_norm(module)


def test_an_alias_that_every_forward_replaces() -> None:
    """The old spectral_norm leaves the memory of `weight_orig` in `weight` until the first forward."""
    outcomes = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module = spectral(nn.Linear(4, 3))
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

        def step(x: torch.Tensor, module: nn.Module = module, optimizer: torch.optim.Optimizer = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = module(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = L.jit(step) if compiled else step
        losses = [call(torch.randn(5, 4)).item() for _ in range(4)]
        outcomes.append((torch.tensor(losses), {name: value.detach().cpu() for name, value in module.state_dict().items()}))
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_an_alias_that_is_written_to_before_is_refused() -> None:
    module = spectral(nn.Linear(4, 3))

    def step(x: torch.Tensor) -> torch.Tensor:
        torch.zero_(torch.as_tensor(module.weight))
        return module(x)

    with pytest.raises(L.CaptureError, match="two tensors over the same memory"):
        L.jit(step)(torch.randn(5, 4))
