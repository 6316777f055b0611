"""Host time per step of `fit`, over calling its compiled program in a bare loop; and beside another checkout of systolic.

Usage: python benchmarks/overhead.py --before CHECKOUT [--rounds 3]

On a CPU the device's work runs beside the host's and hides what fits under it: where a program became faster, less is hidden,
and the difference to a bare loop grows with nothing added to it. "In turn" the host waits for each step's work. Two checkouts,
whose programs differ, are compared by the time that a step spends outside the call of its program.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import torch
import torch.nn.functional as F
from results import processor, table, vectors, write_section
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

ROOT = Path(__file__).resolve().parents[1]
_IN_CHILD = "import json, sys; from overhead import {0}; print(json.dumps({0}(int(sys.argv[1]))))"


class Deep(L.LightningModule):
    """Many small layers: AdamW keeps four tensors of state for each of their two parameters."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.net = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(16, 16), nn.ReLU())], nn.Linear(16, 10))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def _engine_of(trainer: Any) -> Any:
    engines = trainer.run.engines.values() if hasattr(trainer, "run") else trainer._engines  # of 0.1
    return next(engine for engine in engines if getattr(engine, "_entries", None))


class Compare(L.Callback):
    """Times each epoch of fit, then the same program in a bare loop."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.fit_us: list[float] = []
        self.bare_us: list[float] = []
        self.state_tensors = 0

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self._started = time.perf_counter()

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        engine = _engine_of(trainer)
        program = engine._entries[0].program
        jax.block_until_ready(program.buffers[0].array)
        self.fit_us.append((time.perf_counter() - self._started) / self.steps * 1e6)
        leaves = [torch.zeros(32, 16).numpy(), torch.zeros(32, dtype=torch.long).numpy()]
        donated, kept, leaves, constants, scalars, outcome, key = program.arguments(leaves, engine.last_numbers)
        started = time.perf_counter()
        with jax.enable_x64(True):
            for _ in range(self.steps):
                donated, _, outcome, key = program.function(donated, kept, leaves, constants, scalars, outcome, key)
        jax.block_until_ready(donated)
        self.bare_us.append((time.perf_counter() - started) / self.steps * 1e6)
        program.keep(donated, outcome, key, [({}, None)] * self.steps)
        self.state_tensors = len(program.captured.slots)


class Outside(L.Callback):
    """Times each epoch of fit, and the calls of its program in it."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.fit_us: list[float] = []
        self.outside_us: list[float] = []
        self.state_tensors = 0
        self._called = 0.0

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self._called, self._started = 0.0, time.perf_counter()

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        took = time.perf_counter() - self._started
        if self.state_tensors:
            self.fit_us.append(took / self.steps * 1e6)
            self.outside_us.append((took - self._called) / self.steps * 1e6)
            return
        program = _engine_of(trainer)._entries[0].program
        self.state_tensors = len(program.captured.slots)
        program.function = self._timed(program.function)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = function(*arguments)
            self._called += time.perf_counter() - began
            return result

        return timed


def _fit(layers: int, steps: int, epochs: int, callback: L.Callback) -> None:
    data = TensorDataset(torch.randn(32 * steps, 16), torch.randint(0, 10, (32 * steps,)))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=epochs, callbacks=[callback], **quiet)
    trainer.fit(Deep(layers), DataLoader(data, batch_size=32, shuffle=True))


def measure(layers: int, steps: int = 200, rounds: int = 9) -> tuple[int, float, float]:
    """State tensors, and the medians of a step of fit and of the bare loop in microseconds."""
    compare = Compare(steps)
    _fit(layers, steps, rounds + 1, compare)
    return compare.state_tensors, statistics.median(compare.fit_us[1:]), statistics.median(compare.bare_us[1:])


def measure_outside(layers: int, steps: int = 200, rounds: int = 30) -> tuple[int, float, float]:
    """State tensors, and the medians of a step of fit and of its time outside the program's call in microseconds."""
    outside = Outside(steps)
    _fit(layers, steps, rounds + 1, outside)
    return outside.state_tensors, statistics.median(outside.fit_us), statistics.median(outside.outside_us)


def measure_in_child(
    layers: int, in_turn: bool, measured: Callable[[int], tuple[int, float, float]] = measure, checkout: Path = ROOT
) -> tuple[int, float, float]:
    """Measure in a process of its own.

    Args:
        layers: of the model.
        in_turn: whether the host waits for each step's work.
        measured: `measure` or `measure_outside`.
        checkout: whose systolic.
    """
    paths = [checkout / "src", ROOT / "benchmarks"]
    dispatch = {"JAX_CPU_ENABLE_ASYNC_DISPATCH": "false" if in_turn else "true"}
    tensors, fit, other = answer_of(["-c", _IN_CHILD.format(measured.__name__), str(layers)], paths, dispatch)
    return tensors, fit, other


def answer_of(arguments: Sequence[str], paths: Sequence[Path], environment: Mapping[str, str] | None = None) -> Any:
    """JSON in the last line that another Python prints.

    Args:
        arguments: its command line.
        paths: where it looks for modules first.
        environment: in addition to this process's.
    """
    variables = {**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-P", "-W", "ignore", *arguments]  # not from where this one was started
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure both checkouts in turns, and write a section of RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of an earlier systolic")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    lines = [["state tensors", "device", "fit before, us", "fit now", "outside before, us", "outside now", "now / before"]]
    for layers in (3, 75):
        for in_turn in (True, False):
            found: dict[Path, list[tuple[float, float]]] = {given.before.resolve(): [], ROOT: []}
            tensors = 0
            for _ in range(given.rounds):
                for checkout, times in found.items():
                    tensors, fit, outside = measure_in_child(layers, in_turn, measure_outside, checkout)
                    times.append((fit, outside))
            (fit_before, before), (fit_now, now) = (
                [statistics.median(one) for one in zip(*t, strict=True)] for t in found.values()
            )
            kind = "in turn" if in_turn else "beside the host"
            figures = (f"{value:.0f}" for value in (fit_before, fit_now, before, now))
            lines.append([str(tensors), kind, *figures, f"{now / before:.2f}"])
            print(*lines[-1], sep="  ", flush=True)
    write_section(
        f"host overhead, {vectors()}",
        "## Host overhead per step, before and now\n\n"
        f"Written by `python benchmarks/overhead.py --before` on {datetime.date.today()}: {processor()}, both "
        f"checkouts in turns, medians of {given.rounds} rounds, with the installed torch and jax for both. Outside is what a "
        f"step of `fit` takes outside the call of its program.\n\n{table(lines)}",
    )


if __name__ == "__main__":
    main()
