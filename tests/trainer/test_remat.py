"""`Trainer(remat=)`: less is kept for the backward pass, and the numbers are the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import trainer

import systolic as L
from systolic.compiler import model_flops

NOT_BEFORE = torch.ops.systolic.not_before.default
WIDTH, HEADS, LENGTH = 16, 2, 8


class Block(nn.Module):
    """A transformer's."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.project(self.norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).flatten(2))
        return x + self.wide(x)


class Model(L.LightningModule):
    """Three blocks between a table and a layer."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(32, WIDTH)
        self.blocks = nn.Sequential(*(Block(dropout) for _ in range(3)))
        self.head = nn.Linear(WIDTH, 32)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        logits = self.head(self.blocks(self.table(batch[0])))
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch[0][:, 1:].flatten())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.blocks(self.table(batch[0])).mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Images(L.LightningModule):
    """Convolutions and batch norms, in no list."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(8)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x = self.norm(self.first(batch[0])).relu()
        x = self.norm2(self.second(x)).relu()
        return x.mean((2, 3)).square().sum(1).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def words() -> DataLoader[Any]:
    torch.manual_seed(1)
    return DataLoader(TensorDataset(torch.randint(32, (32, LENGTH))), batch_size=8)


def images() -> DataLoader[Any]:
    torch.manual_seed(1)
    return DataLoader(TensorDataset(torch.rand(16, 3, 8, 8)), batch_size=8)


class KeepsProgram(L.Callback):
    """Looks at the step's program before it is forgotten."""

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        engine: Any = next(iter(trainer._run.engines.values()))
        program = engine._entries[0].program
        self.graph: torch.fx.Graph = program.captured.graph
        self.digest: str = program.captured.digest
        self.checks: int = len(program.checks)

    @property
    def barriers(self) -> int:
        return sum(node.target is NOT_BEFORE for node in self.graph.nodes)


def fitted(module: L.LightningModule, data: DataLoader[Any], **options: Any) -> tuple[dict[str, torch.Tensor], KeepsProgram]:
    """The weights after an epoch, and the program of its last step."""
    L.seed_everything(1)
    kept = KeepsProgram()
    callbacks = [kept] if options.get("compile", True) else []
    trainer(callbacks=callbacks, **options).fit(module, data)
    return {name: value.detach().clone() for name, value in module.state_dict().items()}, kept


def require_equal(received: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], **tolerances: float) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(received[name], value, msg=lambda text, name=name: f"{name}: {text}", **tolerances)


def only_products(op: torch._ops.OpOverload) -> bool:
    return op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


@pytest.mark.parametrize("remat", ["dots", "full", only_products], ids=["dots", "full", "policy"])
@pytest.mark.thin(3)
def test_weights_are_those_of_eager_pytorch(remat: Any) -> None:
    expected, _ = fitted(Model(), words(), compile=False)
    received, kept = fitted(Model(), words(), remat=remat)
    require_equal(received, expected, rtol=1e-4, atol=1e-5)
    assert kept.barriers >= 3


@pytest.mark.tables(every=2)
@pytest.mark.parametrize("remat", ["dots", "full"])
def test_dropout_draws_the_same_mask_again(remat: str) -> None:
    expected, _ = fitted(Model(dropout=0.3), words())
    received, _ = fitted(Model(dropout=0.3), words(), remat=remat)
    require_equal(received, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"devices": 8},
        {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5},
        {"steps_per_dispatch": 2},
        {"devices": 8, "strategy": "fsdp"},
    ],
    ids=["8 cores", "accumulation", "dispatch", "fsdp"],
)
@pytest.mark.parametrize("remat", ["dots", "full"])
@pytest.mark.tables(every=4)
def test_together_with(options: dict[str, Any], remat: str) -> None:
    weights: list[dict[str, torch.Tensor]] = []
    for value in ("none", remat):
        module = Model(dropout=0.3)
        L.seed_everything(1)
        trainer(remat=value, **options).fit(module, words())  # a callback that looks at the program would end dispatching
        weights.append(dict(module.state_dict()))
    require_equal(weights[1], weights[0], rtol=1e-4, atol=1e-5)


@pytest.mark.tables
def test_mixed_precision() -> None:
    expected, _ = fitted(Model(), words(), precision="bf16-mixed")
    received, _ = fitted(Model(), words(), precision="bf16-mixed", remat="full")
    require_equal(received, expected, rtol=1e-2, atol=1e-3)


@pytest.mark.tables
def test_images_without_blocks() -> None:
    expected, _ = fitted(Images(), images(), compile=False)
    received, kept = fitted(Images(), images(), remat="dots")
    require_equal(received, expected, rtol=1e-4, atol=1e-5)
    assert kept.barriers > 0


def test_blocks_are_asked_for_where_there_are_none() -> None:
    with pytest.raises(L.MisconfigurationException, match="repeated blocks.*remat='dots'"):
        trainer(remat="full").fit(Images(), images())


@pytest.mark.tables
def test_full_keeps_the_borders_of_blocks() -> None:
    _, plain = fitted(Model(), words())
    _, full = fitted(Model(), words(), remat="full")
    assert full.barriers == 3
    barriers = [node for node in full.graph.nodes if node.target is NOT_BEFORE]
    # what comes into a block, and nothing else
    assert [len(node.args[0]) for node in barriers] == [1, 1, 1]
    assert all(node.args[1] for node in barriers)
    # an index is looked at once
    assert full.checks == plain.checks


@pytest.mark.tables
def test_dots_repeats_no_product() -> None:
    _, plain = fitted(Model(), words())
    _, dots = fitted(Model(), words(), remat="dots")
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    count: Callable[[KeepsProgram], int] = lambda kept: sum(node.target in products for node in kept.graph.nodes)  # noqa: E731
    assert count(dots) == count(plain)


@pytest.mark.tables
def test_none_is_the_program_as_it_was() -> None:
    digests = {fitted(Model(), words(), **options)[1].digest for options in ({}, {"remat": "none"})}
    assert len(digests) == 1
    assert digests.isdisjoint({fitted(Model(), words(), remat=remat)[1].digest for remat in ("dots", "full")})


@pytest.mark.tables
def test_flops_of_the_model_do_not_count_what_is_computed_again() -> None:
    found = {model_flops(fitted(Model(), words(), remat=remat)[1].graph) for remat in ("none", "dots", "full")}
    assert len(found) == 1


@pytest.mark.parametrize("value", ["fulll", 3, None, True])
def test_impossible_values(value: Any) -> None:
    with pytest.raises(ValueError, match="`remat`. Expected one of 'none', 'dots', 'full', or a function"):
        trainer(remat=value)


def test_eager_runs_say_that_it_has_no_effect() -> None:
    with pytest.warns(UserWarning, match="`remat` has no effect there"):
        L.Trainer(accelerator="cpu", compile=False, remat="dots", logger=False, enable_progress_bar=False)


def test_evaluation_keeps_nothing_and_changes_nothing() -> None:
    module = Model()
    validating = trainer(remat="full")
    assert validating.remat == "full"
    validating.validate(module, words(), verbose=False)


@pytest.mark.tables
@pytest.mark.parametrize("checkpointing", [False, True])
def test_transformers(checkpointing: bool) -> None:
    transformers = pytest.importorskip("transformers")

    class GPT(L.LightningModule):
        def __init__(self, again: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            config = transformers.GPT2Config(
                n_layer=3, n_embd=32, n_head=2, vocab_size=64, n_positions=16, resid_pdrop=0.0, embd_pdrop=0.0,
                attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
            )  # fmt: skip
            self.net = transformers.GPT2LMHeadModel(config)
            if again:
                self.net.gradient_checkpointing_enable()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.net(batch[0], labels=batch[0]).loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = fitted(GPT(False), words(), compile=False)
        received, kept = fitted(GPT(checkpointing), words(), remat="none" if checkpointing else "full")
    require_equal(received, expected, rtol=1e-4, atol=1e-5)
    assert kept.barriers == 3


@pytest.mark.slow
def test_a_tpu_needs_less_memory() -> None:
    """By the real TPU compiler: with the borders of blocks a quarter less than with everything."""
    pytest.importorskip("libtpu")

    class Deep(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(
                *(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.Tanh()) for _ in range(6))
            )

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.blocks(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = DataLoader(TensorDataset(torch.rand(8 * 4096, 256)), batch_size=4096)
    totals = {
        remat: trainer(remat=remat).preflight(Deep(), data, slice="v5litepod-8").memory.total
        for remat in ("none", "dots", "full")
    }
    assert totals["full"] < 0.75 * totals["none"]
    # what a GELU leaves libtpu computes again by itself
    assert totals["dots"] <= totals["none"]
