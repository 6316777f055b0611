"""Sharded steps under the TPU's own compiler: what a program fetches and sums, read from the program."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

WORDS, LENGTH = 1024, 256


class Language(L.LightningModule):
    """With a cache its projections are not next to attention: the cache's values are between them."""

    def __init__(self, use_cache: bool) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 1, "vocab_size": WORDS}
        self.net = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=4, use_cache=use_cache))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return self.net(input_ids=batch[0], labels=batch[0]).loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-4)


# promise 21
@pytest.mark.slow
@pytest.mark.parametrize("use_cache", [True, False])
def test_fsdp_gathers_half_precision_twice_and_sums_no_whole_gradient(use_cache: bool) -> None:
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = L.Trainer(accelerator="cpu", devices=8, max_steps=2, precision="bf16-mixed", strategy="fsdp", **options)
    module = Language(use_cache)
    loader = DataLoader(TensorDataset(torch.zeros(64, LENGTH, dtype=torch.int64)), batch_size=4)
    report = trainer.preflight(module, loader, slice="v5litepod-8", advise=False)
    moved: Counter[str] = Counter()
    for one in report.collectives:
        moved[one.kind] += one.bytes
    split = sum(p.numel() for p in module.parameters() if p.numel() > 2048)
    products = split - module.net.get_input_embeddings().weight.numel()
    words = 4 * LENGTH
    # each parameter comes to a core for the forward and for the backward, and leaves it as its part of the gradient
    assert moved["all-gather"] == 2 * 2 * products + 2 * 4 * 8 * words
    assert moved["reduce-scatter"] == 4 * products
    # of the embedding's table the rows that are looked up, and their gradients
    assert moved["all-to-all"] == 2 * 4 * words * 512
    assert moved["all-reduce"] < 0.001 * 4 * split
    assert report.memory.parameters < 4 * split / 8 * 1.01
