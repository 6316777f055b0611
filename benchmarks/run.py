"""Time systolic against hand-written JAX, Lightning, `torch.compile` and a bare eager loop, in turns; write RESULTS.md."""

from __future__ import annotations

import argparse
import datetime
import logging
import platform
import warnings

import jax
import lightning
import torch
from contenders import CONTENDERS, GROUP, GROUPED
from overhead import measure_in_child
from results import processor, table, vectors, write_section
from turns import Contender, medians_of_processes

import systolic

# batches an epoch, rounds
SIZES = {"mlp": (200, 9), "gpt": (3, 7), "resnet18": (2, 5), "lstm": (4, 7), "bert": (8, 7)}
GOALS = {
    "mlp": "jax 0.9, lightning 1/12",
    "gpt": "all 0.9",
    "resnet18": "all 0.9",
    "lstm": "lightning 0.9",
    "bert": "lightning 0.9",
}


def compare(name: str) -> dict[str, float]:
    """Milliseconds per step of every contender: the median over rounds, in each of which all of them take their turn."""
    who_contends = CONTENDERS | (GROUPED if name == "mlp" else {})
    processes = {who: Contender([__file__, "--contend", who, "--models", name], {}) for who in who_contends}
    return medians_of_processes(processes, SIZES[name][1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(SIZES))
    parser.add_argument("--contend", metavar="WHO", help="be one of the processes that take turns")
    arguments = parser.parse_args()
    if arguments.contend:
        (name,) = arguments.models
        (CONTENDERS | GROUPED)[arguments.contend](name, SIZES[name][0])
        return
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    overhead = [["state tensors", "device", "fit, us", "bare loop, us", "host overhead, us", "goal, us"]]
    for layers, goal in ((3, "25"), (75, "150")):
        for kind, in_turn, wanted in (("beside the host", False, goal), ("in turn", True, "")):
            tensors, fit, bare = measure_in_child(layers, in_turn)
            overhead.append([str(tensors), kind, f"{fit:.0f}", f"{bare:.0f}", f"{fit - bare:.0f}", wanted])
            print(overhead[-1], flush=True)
    others = [who for who in CONTENDERS if who != "systolic"]
    speed = [["model", *(f"{who}, ms" for who in CONTENDERS), *(f"/ {who}" for who in others), "goal"]]
    grouped = [["model", f"steps_per_dispatch={GROUP}, ms", "1, ms", "/ 1", "/ jax", "/ lightning"]]
    for name in arguments.models:
        ms = compare(name)
        ratios = [f"{ms['systolic'] / ms[other]:.2f}" for other in others]
        speed.append([name, *(f"{ms[who]:.3g}" for who in CONTENDERS), *ratios, GOALS[name]])
        print(speed[-1], flush=True)
        if "grouped" in ms:
            against = [f"{ms['grouped'] / ms[other]:.2f}" for other in ("systolic", "jax", "lightning")]
            grouped.append([name, f"{ms['grouped']:.3g}", f"{ms['systolic']:.3g}", *against])
            print(grouped[-1], flush=True)
    write_section(
        f"make bench, {vectors()}",
        f"# On a processor with {vectors()}\n\nWritten by `make bench` on {datetime.date.today()}: {processor()}, "
        f"Python {platform.python_version()}, systolic {systolic.__version__}, torch {torch.__version__}, "
        f"jax {jax.__version__}, lightning {lightning.__version__}.\n\n"
        "The machine is shared, so ratios count, not times. Each contender is a process of its own, as users have it, and the "
        "processes take turns within each round; every figure is a median over rounds.\n\n## Host overhead per step\n\n"
        "`trainer.fit` with a DataLoader against the same compiled program called in a bare loop with one constant "
        "batch: data loading, guards, logging and hooks are in the difference. The device's work runs beside the host's and "
        "hides a part of it; in turn nothing is hidden.\n\n"
        f"{table(overhead)}\n\n## Milliseconds per step, one CPU device\n\n"
        "systolic: `fit` with a torch DataLoader. jax: the model by hand in JAX and optax, NumPy indexing as its loader "
        "(`benchmarks/jax_reference.py`). lightning: its `fit`, same module and loader. compiled: the same with "
        "the network under `torch.compile`. eager: a bare PyTorch loop. "
        "mlp: digits, batch 64. resnet18: 32x32 images, batch 32. gpt: 4 layers, d 256, 128 tokens, batch 16, dropout 0.1. "
        "lstm: 2 layers of 256, 128 tokens, batch 16. bert: BERT-tiny of transformers (2 layers, d 128), 128 tokens with "
        "padding, batch 16, dropout 0.1."
        f"\n\n{table(speed)}\n\n## Several steps a dispatch\n\n"
        f"The same `fit` with `steps_per_dispatch={GROUP}`, in the same rounds.\n\n{table(grouped)}\n",
    )


if __name__ == "__main__":
    main()
