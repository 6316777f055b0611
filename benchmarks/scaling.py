"""One step under the TPU compiler on 8 to 2,048 chips, for data parallelism and fsdp: writes docs/scaling.md.

Usage: python benchmarks/scaling.py [--slices v5litepod-8 v5litepod-64 ...]

The work of each core stays the same (weak scaling). Takes about a minute a row; what was compiled before comes from the cache.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM

import systolic as L
from systolic.preflight import PreflightReport

DOCUMENT = Path(__file__).parents[1] / "docs" / "scaling.md"
SLICES = (
    "v5litepod-8", "v5litepod-64", "v5litepod-256", "v5p-16", "v5p-128", "v5p-1024", "v5p-4096", "v3-8", "v3-128", "v3-2048",
)  # fmt: skip
STRATEGIES = ("ddp", "fsdp")
ROWS, TOKENS = 4, 1024
WORDS, WIDTH, LAYERS = 32_768, 1024, 4

_HEAD = """# Scaling

What the TPU compiler makes of one and the same step on 8 to 2,048 chips, with the same work for each core.
Nothing here ran on a TPU: FLOPs, memory and bytes of collectives are those of the programs that libtpu {libtpu} compiled on
{date}; the times are predictions. `python benchmarks/scaling.py` writes this page.

The model is a Llama with {layers} layers, width {width:,} and {words:,} words ({parameters:,} parameters), bf16-mixed under
AdamW, {rows} x {tokens:,} tokens for each core. "ddp" keeps the state on every core, "fsdp" divides it
([sharding](sharding.md)).

- **Computation** is the sum of the compiler's estimated cycles over the clock. It knows nothing of waiting for others.
- **Communication** is a model, stated in `systolic.preflight`: a ring moves (n - 1) / n of the bytes, twice for an all-reduce,
  over all axes of the torus at once, each link in both directions, and a microsecond a hop. What the program starts before it
  needs the result is hidden by computation, as far as there is some.
- **Efficiency** is samples per second and core, against those of the smallest slice in the table. Stragglers, the feeding of
  hosts, and networks that others use are not in it.
- **Fetched, summed**: from 64 cores of a v5e on, libtpu makes all-reduces of the sums that a core needs a part of, and of what
  is fetched where a core's part is no whole tile; these stand under "summed", and little of them is hidden.
- What does not divide by the number of cores stays whole: a width of 1,024 on 2,048 cores.

"""


@dataclass(frozen=True)
class Row:
    """Figures of one program.

    Attributes:
        report: of the step.
        strategy: how the state lies.
    """

    report: PreflightReport
    strategy: str

    @property
    def samples_per_core(self) -> float:
        """Predicted samples per second, for each core."""
        return self.report.batch.per_core / self.report.time.step


class Language(L.LightningModule):
    """A language model whose parameters need no memory: only their shapes are asked for."""

    def configure_model(self) -> None:
        """Make it on the meta device."""
        sizes = {"hidden_size": WIDTH, "intermediate_size": 2816, "num_hidden_layers": LAYERS, "vocab_size": WORDS}
        with torch.device("meta"):
            self.net = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=4, use_cache=False))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Predict the next word."""
        return self.net(input_ids=batch[0], labels=batch[0], use_cache=False).loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), 1e-4)


def compiled(names: Iterable[str]) -> Iterator[Row]:
    """A row for each slice and strategy."""
    for name in names:
        for strategy in STRATEGIES:
            trainer = L.Trainer(
                accelerator="cpu", devices=1, strategy=strategy, precision="bf16-mixed",
                logger=False, enable_checkpointing=False, enable_progress_bar=False, max_steps=2,
            )  # fmt: skip
            loader = DataLoader(TensorDataset(torch.zeros(ROWS * 8192, TOKENS, dtype=torch.int64)), batch_size=ROWS)
            report = trainer.preflight(Language(), loader, slice=name, advise=False)
            print(f"{name} {strategy}: {report.time.step * 1e3:.1f} ms", flush=True)
            yield Row(report, strategy)


def document(rows: Iterable[Row]) -> str:
    """The text of docs/scaling.md."""
    every = list(rows)
    text = _HEAD.format(
        libtpu=importlib.metadata.version("libtpu"), date=datetime.date.today(), layers=LAYERS, width=WIDTH, words=WORDS,
        parameters=every[0].report.parameters, rows=ROWS, tokens=TOKENS,
    )  # fmt: skip
    for kind, members in groupby(every, lambda row: row.report.slice.name.partition("-")[0]):
        text += f"## {kind}\n\n" + "\n".join(_table(list(members))) + "\n\n"
    return text.rstrip() + "\n"


def _table(rows: list[Row]) -> Iterator[str]:
    yield (
        "| slice | cores | strategy | GFLOP a core | state, MiB | temporaries, MiB | summed, MiB | fetched, MiB "
        "| exchanged, MiB | computation, ms | communication that nothing hides, ms | step, ms | utilization | efficiency |"
    )
    yield "|" + "---|" * 14
    for row in rows:
        first = next(other for other in rows if other.strategy == row.strategy)
        report, memory = row.report, row.report.memory
        moved = [_moved(report, *kinds) for kinds in (("all-reduce", "reduce-scatter"), ("all-gather",), ("all-to-all",))]
        cells = [
            report.slice.name, f"{report.slice.cores:,}", row.strategy, f"{report.work.flops / 1e9:,.0f}",
            f"{(memory.parameters + memory.optimizer_state) / 2**20:,.1f}", f"{memory.temporaries / 2**20:,.0f}",
            *(f"{size / 2**20:,.0f}" for size in moved), f"{(report.time.step - report.time.collectives) * 1e3:,.2f}",
            f"{report.time.collectives * 1e3:,.2f}", f"{report.time.step * 1e3:,.2f}", f"{report.time.utilization:.0%}",
            f"{row.samples_per_core / first.samples_per_core:.0%}",
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _moved(report: PreflightReport, *kinds: str) -> int:
    return sum(one.bytes for one in report.collectives if one.kind in kinds)


def main() -> None:
    """Compile all, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", nargs="*", default=SLICES, help="names of slices; the first of a kind is compared with")
    parser.add_argument("--output", type=Path, default=DOCUMENT, help="file to write")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "The dataset")
    options.output.write_text(document(compiled(options.slices)))


if __name__ == "__main__":
    main()
