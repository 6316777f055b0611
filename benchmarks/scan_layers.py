"""Lower and compile GPT-2 124M of transformers for a TPU slice that is not here, with and without `scan_layers=True`.

Run it with `python benchmarks/scan_layers.py`; it takes minutes per program.
"""

from __future__ import annotations

import argparse
import datetime
import time
import warnings
from typing import Any

import jax
import torch
import transformers
from results import table, write_section
from torch.utils.data import DataLoader, TensorDataset

import systolic
from systolic.preflight import parse_slice, slice_devices
from systolic.preflight._compiled import Lowered
from systolic.preflight._hlo import analyse
from systolic.trainer.inspection import Subject, trace_step

BATCH, LENGTH = 8, 1024
SLICE = "v5litepod-8"


class GPT2(systolic.LightningModule):
    """124M parameters; dropout 0.1 everywhere, as transformers has it."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.net = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers, loss_type="ForCausalLM"))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch[0], labels=batch[0], use_cache=False).loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=6e-4)


def row(layers: int, scan: bool, remat: str) -> list[str]:
    """Seconds and bytes of one program."""
    devices = slice_devices(parse_slice(SLICE))
    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.int64)
    trainer = systolic.Trainer(
        accelerator="cpu", precision="bf16-mixed", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        scan_layers=scan, remat=remat,
    )  # fmt: skip
    started = time.perf_counter()
    step = trace_step(
        Subject.of(trainer, "fit", GPT2(layers), DataLoader(TensorDataset(tokens), batch_size=BATCH)), devices, None
    )
    traced = time.perf_counter()
    program, arguments = step.program(devices)
    with jax.enable_x64(True):
        text = program.function.lower(*arguments).as_text()
    lowered = time.perf_counter()
    compiled = Lowered(program.function, arguments, f"{SLICE} {time.time()}").compile()
    memory = compiled.memory
    hbm = memory["arguments"] + memory["outputs"] - memory["aliased"] + memory["temporaries"]
    figures = [traced - started, lowered - traced, len(text.splitlines()), compiled.seconds, hbm / 1e9]
    figures += [memory["temporaries"] / 1e9, analyse(compiled.hlo).estimated_cycles / 1e6]
    name = ("loop" if scan else "layer by layer") + (f", remat={remat!r}" if remat != "none" else "")
    return [f"{layers} layers, {name}", *(f"{figure:.1f}" if isinstance(figure, float) else str(figure) for figure in figures)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12, help="another number than 12 is printed, and not kept")
    parser.add_argument("--remat", default="none", help="as the Trainer takes it")
    parser.add_argument("--scan", type=int, choices=(0, 1), help="only without (0) or with (1) the loop; nothing is kept")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [["program", "trace s", "lower s", "StableHLO lines", "compile s", "GB of HBM", "of it temporary", "M cycles"]]
    for scan in (False, True) if arguments.scan is None else (bool(arguments.scan),):
        rows.append(row(arguments.layers, scan, arguments.remat))
        print(" | ".join(rows[-1]), flush=True)
    if arguments.layers == 12 and arguments.scan is None:
        write_section(
            "scan layers",
            "## Layers as one loop: GPT-2 124M\n\n"
            f"Written by `python benchmarks/scan_layers.py` on {datetime.date.today()}: jax {jax.__version__}, torch "
            f"{torch.__version__}, transformers {transformers.__version__}. {SLICE}, batch {BATCH} x {LENGTH} per core, "
            "dropout 0.1, bf16-mixed, AdamW; compiled by libtpu, nothing ran. Cycles: its estimates, summed, of which "
            f"there are none for attention's kernels.\n\n{table(rows)}",
        )


if __name__ == "__main__":
    main()
