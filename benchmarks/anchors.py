"""torchprime's Llama 3 8B on v6e-4 beside systolic's step for the same shapes under the TPU compiler, for RESULTS.md.

Usage: python benchmarks/anchors.py [--ways "fsdp, loop" ...]

Nothing runs on a TPU. A way takes minutes and up to 10 GB of this machine; what was compiled before comes from
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
from systolic.preflight import PreflightReport, parse_slice
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
        measured: seconds a step, the mean of torchprime's runs, and what these were.
        loop: whether layers are one loop. Then all of them are compiled; else a program with two of them and one with four,
            and what the other layers take is what two took.
    """

    slice: str
    strategy: Any
    core_batch: int
    measured: tuple[float, str]
    loop: bool = False

    @property
    def samples(self) -> int:
        """In a step, over all cores."""
        return SAMPLES * parse_slice(self.slice).count


_SPLIT = ModelParallel(fsdp=2, tensor=2)
WAYS = {
    "fsdp": Way("v6e-4", "fsdp", 2, (2.407, "3.1, splash attention")),
    "fsdp, loop": Way("v6e-4", "fsdp", 2, (2.801, "3.1, scan, offload to the host"), loop=True),
    "fsdp 2 x tensor 2": Way("v6e-4", _SPLIT, 4, (3.338, "3.0, flash attention")),
    "two slices, fsdp": Way("2x v6e-4", "fsdp", 2, (3.959, "3.0, flash attention")),
}


_HEAD = (
    "way", "slice", "measured with Llama", "s a step", "utilization", "compiled", "predicted s", "utilization",
    "of it waiting for others", "GiB of HBM",
)  # fmt: skip


class Llama3(L.LightningModule):
    """Llama 3 8B in bfloat16 under Adafactor, as torchprime trains it; only its shapes are asked for."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = layers

    def configure_model(self) -> None:
        """Make it on the meta device."""
        config = LlamaConfig(
            hidden_size=WIDTH, intermediate_size=14336, num_hidden_layers=self.layers, vocab_size=128_256,
            num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=TOKENS, use_cache=False,
        )  # fmt: skip
        with torch.device("meta"):
            self.net = LlamaForCausalLM(config)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Predict the next word."""
        return self.net(input_ids=batch[0], labels=batch[0], use_cache=False).loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adafactor, whose moments are a row and a column for each matrix."""
        return torch.optim.Adafactor(self.parameters(), 5e-5)


def compiled(way: Way, layers: int) -> tuple[PreflightReport, float, float]:
    """What the TPU compiler makes of it: seconds a step, and those of them in which cores only wait for others.

    Raises:
        RuntimeError: it does not fit.
    """
    trainer = L.Trainer(
        accelerator="cpu", devices=1, strategy=way.strategy, precision="bf16-true", remat="full", scan_layers=way.loop,
        max_steps=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    )  # fmt: skip
    loader = DataLoader(TensorDataset(torch.zeros(64, TOKENS, dtype=torch.int64)), batch_size=way.core_batch)
    report = trainer.preflight(Llama3(layers), loader, slice=way.slice, advise=False)
    if report.time is None:
        raise RuntimeError(f"{way} with {layers} layers does not fit: {report.refusal}")
    return report, report.time.step, report.time.collectives


def predicted(way: Way) -> tuple[PreflightReport, float, float, str]:
    """As `compiled`, for all layers, and which programs were."""
    if way.loop:
        return *compiled(way, LAYERS), f"{LAYERS} layers"
    (_, *two), (report, *four) = (compiled(way, layers) for layers in (2, 4))
    seconds, waiting = (b + (LAYERS - 4) / 2 * (b - a) for a, b in zip(two, four, strict=True))
    return report, seconds, waiting, "2 and 4 layers"


def utilization(seconds: float, samples: int, cores: int, peak: float) -> float:
    """Share of the peak, by six FLOPs for a parameter and a token, and attention of which half is hidden."""
    each = 6 * PARAMETERS + 6 * LAYERS * WIDTH * TOKENS
    return each * samples * TOKENS / cores / seconds / peak


def row(name: str) -> list[str]:
    """Predicted and measured figures."""
    way = WAYS[name]
    report, seconds, waiting, programs = predicted(way)
    measured, what = way.measured
    shares = [utilization(one, way.samples, report.slice.cores, report.slice.peak_flops) for one in (measured, seconds)]
    hbm = f"{report.memory.total / 2**30:.1f} of {report.memory.capacity / 2**30:.1f}" if way.loop else ""
    return [
        name, way.slice, what, f"{measured:.3f}", f"{shares[0]:.1%}", programs, f"{seconds:.3f}", f"{shares[1]:.1%}",
        f"{waiting:.3f}", hbm,
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
