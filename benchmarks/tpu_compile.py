"""Compile GPT-2 124M and ResNet-50 for TPU slices that are not here: systolic against hand-written JAX.

Run it with `python benchmarks/tpu_compile.py`; it takes minutes per program, and keeps what the compiler said.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import torch
from jax.sharding import Mesh
from reference import gpt2, resnet50, torch_models
from results import table, write_section
from torch.utils.data import DataLoader, TensorDataset

import systolic
from systolic.preflight import Slice, parse_slice, slice_devices
from systolic.preflight._compiled import Compiled, Lowered
from systolic.preflight._hlo import analyse
from systolic.preflight._kernel_time import kernel_seconds
from systolic.trainer.inspection import Subject, trace_step

SLICES = ("v5litepod-8", "v6e-8")
MODELS = ("gpt2", "resnet50")

RULES = """Both sides are one training step, compiled ahead of time by libtpu's compiler; nothing ran. FLOPs: XLA's count, and
for the attention kernels 2 x scores x features for each of their products (2 forward, 5 backward; ours state the
scores that they visit, JAX's all of them). Bytes: operands and results of every operation that lie in HBM. HBM:
arguments, results and temporaries of one core. Cycles: the sum of the compiler's own `estimated_cycles`; operations
without an estimate (gathers, scatters, random bits) at bytes / bandwidth, attention kernels at FLOPs / peak and the
instructions for each score that the compiler scheduled when it compiled them alone
(`systolic/preflight/_kernel_time.py` has them for both sides); transfers that run beside other work and collectives
are left out."""


@dataclass(frozen=True)
class Row:
    """What one program does in a step, on one core."""

    flops: float
    bytes: float
    hbm: int
    estimated: int
    cycles: float


def reference_of(model: str, mesh: Mesh, layers: int | None) -> tuple[Any, tuple[Any, ...]]:
    """The step by hand, and its arguments as shapes."""
    if model == "gpt2":
        return gpt2.step_of(mesh, gpt2.Sizes(layers=layers or gpt2.Sizes.layers))
    return resnet50.step_of(mesh, resnet50.Sizes(depths=(layers,) * 4 if layers else resnet50.Sizes.depths))


def module_and_data(model: str, layers: int | None) -> tuple[systolic.LightningModule, DataLoader[Any]]:
    """The same model in PyTorch, and a batch for one core."""
    if model == "gpt2":
        sizes = gpt2.Sizes(layers=layers or gpt2.Sizes.layers)
        tokens = torch.zeros(sizes.batch, sizes.length, dtype=torch.int64)
        return torch_models.GPT2(sizes), DataLoader(TensorDataset(tokens, tokens), batch_size=sizes.batch)
    sizes = resnet50.Sizes(depths=(layers,) * 4 if layers else resnet50.Sizes.depths)
    images = torch.zeros(sizes.batch, 3, sizes.image, sizes.image)
    labels = torch.zeros(sizes.batch, dtype=torch.int64)
    return torch_models.ResNet50(sizes.depths), DataLoader(TensorDataset(images, labels), batch_size=sizes.batch)


def compiled(model: str, slice: Slice, by_hand: bool, layers: int | None) -> Compiled:
    """What the compiler says about one side."""
    target = f"{slice.topology} {slice.chip.devices} {slice.count}"
    devices = slice_devices(slice)
    if by_hand:
        function, arguments = reference_of(model, Mesh(np.array(devices), ("data",)), layers)
        return Lowered(function, arguments, target, wide=False).compile()
    module, loader = module_and_data(model, layers)
    trainer = systolic.Trainer(
        accelerator="cpu", precision="bf16-mixed", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    step = trace_step(Subject.of(trainer, "fit", module, loader), devices, None)
    program, arguments = step.program(devices)
    return Lowered(program.function, arguments, target).compile()


def counted(result: Compiled, slice: Slice) -> Row:
    """The same rules for both sides."""
    found = analyse(result.hlo)
    chip = slice.chip
    seconds = sum(kernel_seconds(one, chip) for one in found.custom_calls)
    beside = ("copy-start", "slice-start")
    seconds += sum(
        one.hbm_bytes * one.times / chip.bandwidth_per_device for one in found.unestimated if one.opcode not in beside
    )
    stated = sum(one.flops_known_to_xla for one in found.custom_calls)
    flops = result.flops - stated + sum((one.flops or 0) * one.operation.times for one in found.custom_calls)
    hbm = result.memory["arguments"] + result.memory["outputs"] - result.memory["aliased"] + result.memory["temporaries"]
    moved = sum(one.hbm_bytes * one.times for one in found.operations)
    return Row(flops, moved, hbm, found.estimated_cycles, found.estimated_cycles + seconds * chip.clock_hz)


def cells(name: str, row: Row) -> list[str]:
    figures = (row.flops / 1e12, row.bytes / 1e9, row.hbm / 1e9, row.estimated / 1e6, row.cycles / 1e6)
    return [name, *(f"{figure:.3g}" if figure < 100 else f"{figure:.1f}" for figure in figures)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--slices", nargs="*", default=SLICES)
    parser.add_argument("--layers", type=int, help="fewer layers, to compile faster; RESULTS.md is then not written")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [["model, slice", "by", "TFLOP", "GB moved", "GB of HBM", "estimated M cycles", "predicted M cycles", "ratio"]]
    for model in arguments.models:
        for name in arguments.slices:
            slice = parse_slice(name)
            by_hand = counted(compiled(model, slice, True, arguments.layers), slice)
            ours = counted(compiled(model, slice, False, arguments.layers), slice)
            rows.append([f"{model}, {name}", *cells("JAX", by_hand), ""])
            rows.append([f"{model}, {name}", *cells("systolic", ours), f"{ours.cycles / by_hand.cycles:.3f}"])
            print(*(" ".join(row) for row in rows[-2:]), sep="\n", flush=True)
    if arguments.layers is None:
        write_section(
            "tpu compiler",
            "## TPU compiler: systolic against hand-written JAX\n\n"
            f"Written by `python benchmarks/tpu_compile.py` on {datetime.date.today()}: jax {jax.__version__}, "
            f"torch {torch.__version__}. GPT-2 124M: batch 8 x 1024 per core, dropout 0.1 (not on attention probabilities), "
            "AdamW. ResNet-50: batch 128 per core, SGD with momentum. The reference is `benchmarks/reference/`; systolic "
            f'compiles the modules in `torch_models.py` with `precision="bf16-mixed"`.\n\n{RULES}\n\n{table(rows)}',
        )


if __name__ == "__main__":
    main()
