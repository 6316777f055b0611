"""Time training steps on a GPU: systolic against Lightning, and against Lightning with the network under `torch.compile`.

Usage: python benchmarks/gpu.py [--models NAME ...] [--rounds 5]

The networks are transformers', unmodified, from their configurations, and two of our own. Every contender is a process of its
own which fits the same module from the same loader on the same GPU; they take their turn in each round. Medians over rounds
are appended to gpu.jsonl, and RESULTS.md gets a table of the newest rows.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from models import LSTM, MLP, loss_of
from results import table, write_section
from torch import nn
from turns import Contender, fit_in_turns, medians_in_turn

ROWS = Path(__file__).parent / "gpu.jsonl"
STEPS = 32
CONTENDERS = ("systolic", "lightning", "compiled")
# of the GPU's memory; the other contenders need the rest
_SHARE = "0.5"


class Texts(nn.Module):
    """A network of transformers that finds the loss of its logits itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, labels=labels).loss


class Images(nn.Module):
    """A network of transformers over pixels, with its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(pixel_values=pixels).logits, labels)


class Scored(nn.Module):
    """A network of `models.py`, with its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return loss_of(self.model, (inputs, labels))


def gpt2(**changes: Any) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return Texts(GPT2LMHeadModel(GPT2Config(use_cache=False, **changes)))


def bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return Texts(BertForMaskedLM(BertConfig()))


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 16, "vocab_size": 32000}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 4}
    return Texts(LlamaForCausalLM(LlamaConfig(use_cache=False, **sizes, **heads)))


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return Images(ViTForImageClassification(ViTConfig(num_labels=1000)))


def resnet50() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    return Images(ResNetForImageClassification(ResNetConfig(num_labels=1000)))


@dataclass(frozen=True)
class Contest:
    """One model.

    Attributes:
        title: its name and size in the table.
        make: the network.
        inputs: shape of a batch's tokens or pixels.
        labels: how many classes, or tokens there are.
        precision: the Trainer's.
        of_tokens: whether inputs are tokens, with a label each; otherwise they are numbers, with a label for each row.
    """

    title: str
    make: Callable[[], nn.Module]
    inputs: tuple[int, ...]
    labels: int
    precision: str = "bf16-mixed"
    of_tokens: bool = True

    def batch(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and their labels."""

        def integers(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randint(0, self.labels, shape, generator=generator)

        if self.of_tokens:
            return integers(self.inputs), integers(self.inputs)
        return torch.randn(*self.inputs, generator=generator), integers(self.inputs[:1])


CONTESTS = {
    "gpt2": Contest("GPT-2 124M, 8 x 1,024, dropout 0 in attention", lambda: gpt2(attn_pdrop=0.0), (8, 1024), 50257),
    "vit": Contest("ViT-B/16, 64 x 224 x 224", vit, (64, 3, 224, 224), 1000, of_tokens=False),
    "resnet50": Contest("ResNet-50, 64 x 224 x 224", resnet50, (64, 3, 224, 224), 1000, of_tokens=False),
    "bert": Contest("BERT base, 32 x 512, dropout 0.1", bert, (32, 512), 30522),
    "gpt2-dropout": Contest("GPT-2 124M, 8 x 1,024, dropout 0.1", gpt2, (8, 1024), 50257),
    "llama": Contest("Llama 260M, 16 layers of 1,024, 4 x 2,048", llama, (4, 2048), 32000),
    "lstm": Contest("LSTM, 2 layers of 512, 64 x 128, float32", lambda: Scored(LSTM(512)), (64, 128), 256, "32-true"),
    "mlp": Contest("MLP, 64 x 64, float32", lambda: Scored(MLP()), (64, 64), 10, "32-true", of_tokens=False),
}


def contend(who: str, name: str) -> None:
    """Fit with one of `CONTENDERS`, in turns."""
    framework: Any = import_module("systolic" if who == "systolic" else "lightning")
    contest = CONTESTS[name]
    torch.manual_seed(0)
    network = contest.make()
    if who == "compiled":
        network.compile()
    generator = torch.Generator().manual_seed(1)
    batches = [contest.batch(generator) for _ in range(4)] * (STEPS // 4)

    class Module(framework.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            return self.network(batch[0], batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-4)

    loader = torch.utils.data.DataLoader(batches, batch_size=None, pin_memory=who != "systolic")
    options = {"accelerator": "gpu", "precision": contest.precision}
    fit_in_turns(framework, Module(), loader, lambda: [peak(who)], **options)


def peak(who: str) -> int:
    """The most bytes of the GPU's memory that tensors took so far."""
    if who != "systolic":
        return torch.cuda.max_memory_allocated()
    import jax

    return int(jax.devices("gpu")[0].memory_stats()["peak_bytes_in_use"])


def contender(who: str, name: str) -> Contender:
    """A process that does so."""
    return Contender([__file__, "--contend", who, "--models", name], {"XLA_PYTHON_CLIENT_MEM_FRACTION": _SHARE})


def compare(name: str, rounds: int, whom: Sequence[str]) -> dict[str, Any]:
    """A row: median milliseconds a step and peaks of memory of each contender."""
    contenders = {who: contender(who, name) for who in whom}
    try:
        # programs are compiled side by side
        with ThreadPoolExecutor(len(contenders)) as pool:
            list(pool.map(Contender.epoch, contenders.values()))
        milliseconds = medians_in_turn(contenders, rounds, warm_ups=1)
        peaks = {who: one.others[0] for who, one in contenders.items()}
    finally:
        for one in contenders.values():
            one.end()
    return {"model": name, "ms": milliseconds, "peaks": peaks, "rounds": rounds, **setting()}


def setting() -> dict[str, Any]:
    """When, on which card, with which versions."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip().split(", ")
    packages = ("systolic", "jax", "torch", "lightning", "transformers")
    return {
        "date": str(datetime.date.today()),
        "card": f"{card[0]}, driver {card[1]}",
        "versions": ", ".join(f"{package} {_version(package)}" for package in packages),
    }


def _version(package: str) -> str:
    return import_module(package).__version__ if package == "systolic" else version(package)


def write_table() -> None:
    """The newest row of each model on each card."""
    newest = {(row["card"], row["model"]): row for row in map(json.loads, ROWS.read_text().splitlines())}
    lines = [
        ["model", "card", "systolic, ms", "lightning, ms", "compiled, ms", "/ lightning", "/ compiled", "peak, GiB", "date"]
    ]
    order = list(CONTESTS)
    for row in sorted(newest.values(), key=lambda row: (row["card"], order.index(row["model"]))):
        times, peaks = row["ms"], row["peaks"]
        own = times["systolic"]
        memory = " / ".join(f"{peaks[who] / 2**30:.1f}" for who in CONTENDERS)
        ratios = [f"{own / times[who]:.2f}" for who in ("lightning", "compiled")]
        lines.append(
            [
                CONTESTS[row["model"]].title,
                row["card"],
                *(f"{times[who]:.3g}" for who in CONTENDERS),
                *ratios,
                memory,
                row["date"],
            ]
        )
    versions = sorted({row["versions"] for row in newest.values()})
    text = f"""## One GPU

Written by `python benchmarks/gpu.py` with {"; ".join(versions)}.
transformers' models from their configurations, bfloat16 by `precision="bf16-mixed"` where nothing else is said, AdamW,
`devices=1`, batches in the host's memory. lightning: the same module in its `fit`; compiled: its network under
`torch.compile`. A process for each contender on the same card, which take their turn in each round of {STEPS} steps; medians.
Peak: bytes of tensors in the card's memory, in the order of the contenders.

{table(lines)}
"""
    write_section("gpu", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(CONTESTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS), help="fewer of them, for a look; no row is kept")
    parser.add_argument("--table", action="store_true", help="only write the table of the rows that are there")
    parser.add_argument("--contend", metavar="WHO", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contend:
        contend(arguments.contend, arguments.models[0])
        return
    for name in [] if arguments.table else arguments.models:
        row = compare(name, arguments.rounds, arguments.contenders)
        print(json.dumps(row), flush=True)
        if tuple(arguments.contenders) == CONTENDERS:
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
    write_table()


if __name__ == "__main__":
    main()
