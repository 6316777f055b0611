"""torchprime's Llama 3 8B on v6e-4 beside systolic's step for the same shapes under the TPU compiler, for RESULTS.md.

Usage: python benchmarks/anchors.py [--ways "fsdp, loop" ...]

Nothing runs on a TPU. A way takes 5 to 40 minutes and up to 10 GB of this machine; what was compiled before comes from
the cache.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from results import table, write_section
from torch.utils.data import DataLoader, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM

import systolic as L
from systolic.preflight import PreflightReport
from systolic.strategies import ModelParallel

TOKENS, SAMPLES = 8192, 8
PARAMETERS, LAYERS, WIDTH = 8.03e9, 32, 4096


@dataclass(frozen=True)
class Way:
    """One way to train the model.

    Attributes:
        slice: where.
        strategy: how the state lies.
        core_batch: samples on each core along the axes that split batches.
        samples: in a step, over all cores.
        measured: seconds a step of the mean of torchprime's runs, and what these were.
        options: of the Trainer.
    """

    slice: str
    strategy: Any
    core_batch: int
    samples: int
    measured: tuple[float, str]
    options: dict[str, Any]


_SPLIT = ModelParallel(fsdp=2, tensor=2)
WAYS = {
    "fsdp": Way("v6e-4", "fsdp", 2, SAMPLES, (2.407, "3.1, splash attention"), {}),
    "fsdp, loop": Way("v6e-4", "fsdp", 2, SAMPLES, (2.801, "3.1, scan, offload to the host"), {"scan_layers": True}),
    "fsdp 2 x tensor 2": Way("v6e-4", _SPLIT, 4, SAMPLES, (3.338, "3.0, flash attention"), {}),
    "fsdp 2 x tensor 2, loop": Way("v6e-4", _SPLIT, 4, SAMPLES, (3.338, "3.0, flash attention"), {"scan_layers": True}),
    "two slices, fsdp, loop": Way("2x v6e-4", "fsdp", 2, 2 * SAMPLES, (3.959, "3.0, flash attention"), {"scan_layers": True}),
}  # fmt: skip


_HEAD = (
    "way", "slice", "measured with Llama", "s a step", "utilization", "predicted s", "utilization", "of it waiting for others",
    "GiB of HBM", "minutes to compile",
)  # fmt: skip


class Llama3(L.LightningModule):
    """Llama 3 8B in bfloat16 under Adafactor, as torchprime trains it; only its shapes are asked for."""

    def configure_model(self) -> None:
        """Make it on the meta device."""
        config = LlamaConfig(
            hidden_size=WIDTH, intermediate_size=14336, num_hidden_layers=LAYERS, vocab_size=128_256, num_attention_heads=32,
            num_key_value_heads=8, max_position_embeddings=TOKENS, use_cache=False,
        )  # fmt: skip
        with torch.device("meta"):
            self.net = LlamaForCausalLM(config)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Predict the next word."""
        return self.net(input_ids=batch[0], labels=batch[0], use_cache=False).loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adafactor, whose moments are a row and a column for each matrix."""
        return torch.optim.Adafactor(self.parameters(), 5e-5)


def compiled(way: Way) -> PreflightReport:
    """What the TPU compiler makes of it."""
    trainer = L.Trainer(
        accelerator="cpu", devices=1, strategy=way.strategy, precision="bf16-true", remat="full", max_steps=2,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, **way.options,
    )  # fmt: skip
    loader = DataLoader(TensorDataset(torch.zeros(64, TOKENS, dtype=torch.int64)), batch_size=way.core_batch)
    return trainer.preflight(Llama3(), loader, slice=way.slice, advise=False)


def utilization(seconds: float, samples: int, cores: int, peak: float) -> float:
    """Share of the peak, by six FLOPs for a parameter and a token, and attention of which half is hidden."""
    each = 6 * PARAMETERS + 6 * LAYERS * WIDTH * TOKENS
    return each * samples * TOKENS / cores / seconds / peak


def row(name: str) -> list[str]:
    """Predicted and measured figures."""
    way = WAYS[name]
    report = compiled(way)
    measured, what = way.measured
    shares = [utilization(measured, way.samples, report.slice.cores, report.slice.peak_flops)]
    if report.time is None:
        return [name, way.slice, what, f"{measured:.3f}", f"{shares[0]:.1%}", "does not fit", "", "", "", report.refusal[:80]]
    shares.append(utilization(report.time.step, way.samples, report.slice.cores, report.slice.peak_flops))
    return [
        name, way.slice, what, f"{measured:.3f}", f"{shares[0]:.1%}", f"{report.time.step:.3f}", f"{shares[1]:.1%}",
        f"{report.time.collectives:.3f}", f"{report.memory.total / 2**30:.1f} of {report.memory.capacity / 2**30:.1f}",
        f"{report.compilation.compile / 60:.0f}",
    ]  # fmt: skip


def main() -> None:
    """Compile, and print or keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="*", choices=WAYS, help="only these; printed, and not kept")
    wanted = parser.parse_args().ways
    warnings.simplefilter("ignore")
    rows: list[list[str]] = [list(_HEAD)]
    for name in wanted or WAYS:
        rows.append(row(name))
        print(" | ".join(rows[-1]), flush=True)
    if wanted is None:
        versions = ", ".join(
            f"{name} {importlib.metadata.version(name)}" for name in ("torch", "jax", "libtpu", "transformers")
        )
        write_section("anchors", f"{datetime.date.today()}; {versions}.\n\n{table(rows)}")


if __name__ == "__main__":
    main()
