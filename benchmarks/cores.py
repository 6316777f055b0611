"""Time eight simulated cores against one, and huge pages against small ones, for the same global batch on the same processors.

Usage: python benchmarks/cores.py [--models NAME ...] [--rounds 3] [--times 1 8]

Every contender is a process of its own, alone on the machine, which fits the same module from the same data; they take their
turn in each round, and medians over epochs are written to RESULTS.md. The eight cores share the processors that one has for
itself, and each updates the whole state: that part of a step is done eight times, and counts less the larger the batch is.
"""

from __future__ import annotations

import argparse
import datetime
import resource
import statistics
import subprocess

import torch
from models import BATCH, data_of, lightning_module
from results import processor, table, vectors, write_section
from torch.utils.data import DataLoader, TensorDataset
from turns import Contender, fit_in_turns

import systolic

# steps an epoch at the batch of `make bench`
STEPS = {"mlp": 20, "gpt": 4, "resnet18": 2, "lstm": 4, "bert": 8}
CORES = 8
TIMES = 1, 8  # the batch of `make bench`, and so many times that
GOAL = "1.15"
EPOCHS = 3
PAGES = {"small": "", "huge": "glibc.malloc.hugetlb=1"}


def contend(name: str, cores: int, times: int) -> None:
    """Fit in turns; after each epoch the most memory that the process has had, in MB."""
    data = TensorDataset(*data_of(name, STEPS[name] * times))
    loader = DataLoader(data, batch_size=BATCH[name] * times // cores)
    fit_in_turns(systolic, lightning_module(systolic, name), loader, _memory, accelerator="cpu", devices=cores)


def _memory() -> list[float]:
    return [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]


def contender(name: str, times: int, cores: int, tunables: str) -> Contender:
    """A process that fits so; its C library reads `tunables`, and its programs stay on disk for the next round."""
    arguments = [__file__, "--contend", str(cores), str(times), "--models", name]
    environment = {"GLIBC_TUNABLES": tunables, "JAX_ENABLE_COMPILATION_CACHE": "true"}
    return Contender(arguments, environment, stderr=subprocess.DEVNULL)


def alone(name: str, times: int, cores: int, pages: str) -> tuple[list[float], float]:
    """Milliseconds a step of a process that has the machine for itself, by epoch; the most memory that it had, in MB."""
    one = contender(name, times, cores, PAGES[pages])
    try:
        # the loader counts a batch for each core; two epochs compile, or read from disk
        found = [cores * one.epoch() for _ in range(2 + EPOCHS)][2:]
        return found, one.others[0]
    finally:
        one.end()


def compare(name: str, times: int, rounds: int) -> list[str]:
    """A row of the table."""
    both = [(cores, pages) for cores in (1, CORES) for pages in PAGES]
    found: dict[tuple[int, str], list[float]] = {which: [] for which in both}
    memory: dict[tuple[int, str], float] = {}
    for _ in range(rounds):
        for which in both:
            epochs, memory[which] = alone(name, times, *which)
            found[which] += epochs
    ms = {which: statistics.median(epochs) for which, epochs in found.items()}
    row = [name, str(BATCH[name] * times)]
    for cores in (1, CORES):
        small, huge = (cores, "small"), (cores, "huge")
        row += [
            f"{ms[small]:.3g}",
            f"{ms[huge]:.3g}",
            f"{ms[huge] / ms[small]:.2f}",
            f"{memory[small]:.0f}",
            f"{memory[huge]:.0f}",
        ]
    return [*row, *(f"{ms[CORES, pages] / ms[1, pages]:.2f}" for pages in PAGES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(STEPS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", nargs="*", type=int, default=TIMES, help="batches, in those of `make bench`")
    parser.add_argument("--contend", nargs=2, type=int)
    arguments = parser.parse_args()
    if arguments.contend:
        contend(arguments.models[0], *arguments.contend)
        return
    head = ["model", "global batch"]
    for cores in ("1", str(CORES)):
        head += [f"{cores}: small, ms", "huge, ms", "huge / small", "small, MB", "huge, MB"]
    rows = [[*head, f"{CORES} / 1 (goal {GOAL}), small", "huge"]]
    for name in arguments.models:
        for times in arguments.times:
            rows.append(compare(name, times, arguments.rounds))
            print(rows[-1], flush=True)
    write_section(
        f"cores, {vectors()}",
        f"# Simulated cores and huge pages, on a processor with {vectors()}\n\nWritten by `python benchmarks/cores.py` on "
        f"{datetime.date.today()}: {processor()}, torch {torch.__version__}. Milliseconds a step of `fit` with one and with "
        f"{CORES} simulated cores for the same global batch, with memory in small pages and in huge ones (`docs/memory.md`); "
        f"every column of milliseconds is a process of its own, alone on the machine, medians of {EPOCHS} epochs in each of "
        f"{arguments.rounds} rounds, in turns. MB: the most memory that a process had. "
        f"Each core updates the whole state, so {CORES} of them do that part {CORES} times, on the same "
        f"processors.\n\n{table(rows)}\n",
    )


if __name__ == "__main__":
    main()
