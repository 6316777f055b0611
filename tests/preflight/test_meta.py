"""Modules on the meta device: preflight compiles them as if they had values, and needs no memory for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

QUIET: dict[str, Any] = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_checkpointing": False, "max_steps": 2}


class Words(L.LightningModule):
    """A table, a layer and an output layer that is tied to the table."""

    def __init__(self, device: str, words: int = 512, width: int = 256) -> None:
        super().__init__()
        self.sizes = device, words, width

    def configure_model(self) -> None:
        device, words, width = self.sizes
        with torch.device(device):
            self.table = nn.Embedding(words, width)
            self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
            self.register_buffer("scale", torch.full((width,), 0.5))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        logits = self.layer(self.table(batch[0]) * self.scale) @ self.table.weight.T
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch[0].flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-3)


def report(module: L.LightningModule, **options: Any) -> Any:
    loader = DataLoader(TensorDataset(torch.zeros(64, 128, dtype=torch.int64)), batch_size=4)
    trainer = L.Trainer(**{**QUIET, "precision": "bf16-mixed", **options}, enable_progress_bar=False)
    return trainer.preflight(module, loader, slice="v5litepod-8", advise=False)


@pytest.mark.tables
@pytest.mark.parametrize(
    "options",
    [{}, {"strategy": "fsdp"}, {"strategy": "fsdp", "accumulate_grad_batches": 2}],
    ids=["auto", "fsdp", "accumulating"],
)
def test_the_program_is_that_of_a_module_with_values(options: dict[str, Any]) -> None:
    ours, theirs = (report(Words(device), **options) for device in ("meta", "cpu"))
    assert (ours.memory, ours.work, ours.time, ours.collectives) == (
        theirs.memory,
        theirs.work,
        theirs.time,
        theirs.collectives,
    )
    assert ours.memory.parameters > 0


@pytest.mark.tables
def test_a_model_that_no_machine_here_could_hold() -> None:
    huge = report(Words("meta", words=32_000_000, width=1024), strategy="fsdp")
    assert huge.parameters > 32e9
    assert huge.refusal
    assert huge.memory.parameters > 4 * 32e9 / 8
    # the report says what would have to change: how many cores the state needs
    [larger] = [one for one in huge.advice if one.topic == "state"]
    shares = {one.name.partition(",")[0].partition(":")[0]: one.value for one in larger.evidence}
    assert list(shares) == ["v5litepod-8", "v5litepod-16", "v5litepod-32", "v5litepod-64", "capacity"]
    assert shares["v5litepod-64"] == pytest.approx(shares["v5litepod-8"] / 8, rel=0.01)
    whole = report(Words("meta", words=32_000_000, width=1024))
    assert [one.text.split()[0] for one in whole.advice] == ['strategy="fsdp"', "On"]


class Stack(L.LightningModule):
    """Layers that need more room than they leave, with or without a Sequential around them."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.layers = layers

    def configure_model(self) -> None:
        with torch.device("meta"):
            self.net = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.Tanh()) for _ in range(self.layers)))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return self.net(batch[0].float().repeat(1, 32)).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-3)


@pytest.mark.tables
@pytest.mark.parametrize(("layers", "options", "advised"), [(4, {}, True), (4, {"scan_layers": True}, False), (2, {}, False)])
def test_layers_that_repeat_are_advised_as_a_loop(layers: int, options: dict[str, Any], advised: bool) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(8 << 19, 128, dtype=torch.int8)), batch_size=1 << 19)
    trainer = L.Trainer(**{**QUIET, "strategy": "fsdp", **options}, enable_progress_bar=False)
    found = trainer.preflight(Stack(layers), loader, slice="v5litepod-8", advise=False)
    assert found.refusal
    said = [one.text for one in found.advice if "scan_layers=True" in one.text]
    assert [text.startswith("Trainer(scan_layers=True) runs 4 layers as one loop") for text in said] == [True] * advised


class Llama3(L.LightningModule):
    """The shape of Llama 3 with 8 billion parameters, from transformers' configuration."""

    def configure_model(self) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "vocab_size": 128_256}
        heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
        with torch.device("meta"):
            self.net = LlamaForCausalLM(LlamaConfig(**sizes, **heads, use_cache=False))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return self.net(input_ids=batch[0], labels=batch[0], use_cache=False).loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-4)


# promise 21
@pytest.mark.slow
@pytest.mark.parametrize("scan_layers", [False, True])
def test_llama_3_with_8_billion_parameters_fits_256_cores(scan_layers: bool) -> None:
    """Takes six to fifteen minutes each and 7 GB, of which the compiler is nearly all."""
    loader = DataLoader(TensorDataset(torch.zeros(512, 2048, dtype=torch.int64)), batch_size=1)
    options: dict[str, Any] = {"strategy": "fsdp", "remat": "full", "precision": "bf16-mixed", "scan_layers": scan_layers}
    trainer = L.Trainer(**{**QUIET, **options}, enable_progress_bar=False)
    found = trainer.preflight(Llama3(), loader, slice="v5litepod-256", advise=False)
    assert found.parameters == pytest.approx(8.03e9, rel=0.001)
    assert not found.refusal
    assert found.memory.total <= found.memory.capacity
    state = found.memory.parameters + found.memory.optimizer_state
    assert state == pytest.approx(12 * found.parameters / 256, rel=0.01)
    assert found.time.utilization > 0.3


@pytest.mark.parametrize("options", [{}, {"compile": False}], ids=["compiled", "eager"])
def test_training_refuses_what_has_no_initialisation(options: dict[str, Any]) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(8, 4, dtype=torch.int64)), batch_size=4)
    with pytest.raises(
        L.exceptions.MisconfigurationException, match="'scale' of Words .* on the meta device cannot be initialised"
    ):
        L.Trainer(**{**QUIET, **options}, enable_progress_bar=False, enable_model_summary=False).fit(Words("meta"), loader)
