"""Time networks for images on the CPU: systolic against Lightning, and against another checkout of systolic.

Usage: python benchmarks/cpu_images.py [--before SRC] [--models NAME ...] [--rounds 5]

The models are transformers', unmodified, from their configurations. Every contender is a process of its own which fits the same
module from the same loader; they take their turn in each round, and medians over rounds are written to RESULTS.md.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from results import processor, table, vectors, write_section
from turns import Contender, fit_in_turns, medians_of_processes

STEPS = 4
# images a batch, pixels a side
SIZES = {"ResNet-18": (16, 64), "MobileNetV2": (16, 96), "EfficientNet-B0": (8, 96), "ConvNeXt atto": (8, 96)}


def network(name: str) -> torch.nn.Module:
    """A classifier of ten classes with its initial weights."""
    import transformers as hub

    configs = {
        "ResNet-18": lambda: hub.ResNetConfig(
            layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], num_labels=10
        ),
        "MobileNetV2": lambda: hub.MobileNetV2Config(num_labels=10),
        "EfficientNet-B0": lambda: hub.EfficientNetConfig(
            width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, num_labels=10
        ),
        "ConvNeXt atto": lambda: hub.ConvNextConfig(hidden_sizes=[40, 80, 160, 320], depths=[2, 2, 6, 2], num_labels=10),
    }
    torch.manual_seed(0)
    return hub.AutoModelForImageClassification.from_config(configs[name]())


def contend(package: str, name: str) -> None:
    """Fit with a package, in turns."""
    framework: Any = import_module(package)
    images, side = SIZES[name]
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(images * STEPS, 3, side, side, generator=generator)
    data = torch.utils.data.TensorDataset(pixels, torch.randint(0, 10, (images * STEPS,), generator=generator))

    class Module(framework.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network(name)

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.network(batch[0]).logits, batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-3)

    fit_in_turns(framework, Module(), torch.utils.data.DataLoader(data, batch_size=images), accelerator="cpu")


def contender(package: str, name: str, source: Path | None) -> Contender:
    """A process that does so, with systolic from another folder where one is given."""
    environment = {} if source is None else {"PYTHONPATH": str(source)}
    return Contender([__file__, "--contend", package, "--models", name], environment, stderr=subprocess.DEVNULL)


def compare(name: str, before: Path | None, rounds: int) -> dict[str, float]:
    """Median milliseconds a step of each contender."""
    sources: dict[str, tuple[str, Path | None]] = {"systolic": ("systolic", None), "lightning": ("lightning", None)}
    if before is not None:
        sources["before"] = ("systolic", before)
    contenders = {who: contender(package, name, source) for who, (package, source) in sources.items()}
    return medians_of_processes(contenders, rounds)


def commit_of(folder: Path) -> str:
    """The commit of the checkout that a folder is in, with its first line."""
    command = ["git", "-C", str(folder), "log", "-1", "--format=%h (%s)"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(SIZES))
    parser.add_argument("--before", type=Path, help="the src folder of another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contend", metavar="PACKAGE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contend:
        contend(arguments.contend, arguments.models[0])
        return
    before = commit_of(arguments.before) if arguments.before else None
    rows = [["model", "batch", "before, ms", "systolic, ms", "lightning, ms", "/ before", "/ lightning"]]
    for name in arguments.models:
        ms = compare(name, arguments.before, arguments.rounds)
        images, side = SIZES[name]
        than_before = [f"{ms['before']:.0f}", f"{ms['systolic'] / ms['before']:.2f}"] if "before" in ms else ["", ""]
        own = [f"{ms['systolic']:.0f}", f"{ms['lightning']:.0f}"]
        rows.append(
            [
                name,
                f"{images} x 3 x {side} x {side}",
                than_before[0],
                *own,
                than_before[1],
                f"{ms['systolic'] / ms['lightning']:.2f}",
            ]
        )
        print(rows[-1], flush=True)
    versions = ", ".join(f"{package} {import_module(package).__version__}" for package in ("jax", "torch", "lightning"))
    setting = f"{datetime.date.today()}: {versions}, {processor()}"
    text = f"""## Networks for images on the CPU, with {vectors()}

Written by `python benchmarks/cpu_images.py` on {setting}.
transformers' models from their configurations, float32, AdamW, `devices=1`; a process for each contender, which take
their turn in each of {arguments.rounds} rounds of {STEPS} steps; medians.{f" Before: systolic at {before}." if before else ""}

{table(rows)}
"""
    write_section(f"cpu images, {vectors()}", text)


if __name__ == "__main__":
    main()
