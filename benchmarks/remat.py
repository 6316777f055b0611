"""GPT-2's memory on a v5litepod-8 by what is kept for the backward pass, under the TPU compiler, for docs/memory.md.

Usage: python benchmarks/remat.py

Nothing runs on a TPU.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import warnings

import torch
from results import table, write_section
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

import systolic as L

SLICE, TOKENS, SAMPLES, WORDS = "v5litepod-8", 512, 16, 8192
OWN = "gradient_checkpointing_enable()"


class GPT2(L.LightningModule):
    """GPT-2 with 6 layers of 512 features.

    Args:
        dropout: everywhere, as transformers has it.
        checkpointing: whether transformers' own gradient checkpointing is on.
    """

    def __init__(self, dropout: float, checkpointing: bool) -> None:
        super().__init__()
        rates = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
        self.net = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=512, n_head=8, vocab_size=WORDS, n_positions=TOKENS, **rates))
        if checkpointing:
            self.net.gradient_checkpointing_enable()

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Predict the next word."""
        return self.net(batch[0], labels=batch[0], use_cache=False).loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), 6e-4)


def row(dropout: float, kept: str) -> list[str]:
    """Megabytes, and the predicted step."""
    trainer = L.Trainer(
        accelerator="cpu", devices=1, precision="bf16-mixed", remat="none" if kept == OWN else kept, logger=False,
        enable_checkpointing=False, enable_progress_bar=False,
    )  # fmt: skip
    loader = DataLoader(TensorDataset(torch.zeros(SAMPLES * 8, TOKENS, dtype=torch.int64)), batch_size=SAMPLES)
    report = trainer.preflight(GPT2(dropout, kept == OWN), loader, slice=SLICE, advise=False)
    assert report.time is not None, "it fits"
    assert report.work is not None, "it was compiled"
    memory, flops = report.memory, report.work.flops + report.work.kernel_flops
    return [
        f"{dropout:g}", f"`{OWN}`" if kept == OWN else f'`remat="{kept}"`', f"{memory.temporaries / 1e6:,.0f}",
        f"{memory.total / 1e6:,.0f}", f"{report.time.step * 1e3:.1f}", f"{flops / 1e12:.2f}",
    ]  # fmt: skip


def main() -> None:
    """Compile, and keep the table."""
    warnings.simplefilter("ignore")
    rows = [["dropout", "", "temporaries, MB", "all HBM, MB", "step, ms", "TFLOP"]]
    for dropout in (0.1, 0.0):
        for kept in ("none", "dots", "full", OWN):
            rows.append(row(dropout, kept))
            print(" | ".join(rows[-1]), flush=True)
    names = ("torch", "jax", "libtpu", "transformers")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    write_section("rematerialisation", f"{datetime.date.today()}; {versions}.\n\n{table(rows)}")


if __name__ == "__main__":
    main()
