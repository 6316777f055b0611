"""Count the Python bytecodes that the main thread executes in a step of `fit`, by function: no clock, so no noise.

Usage: python benchmarks/bytecodes.py [--before CHECKOUT] [--layers 3] [--functions 20]

What is done once an epoch or once a second is spread over the steps.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from overhead import ROOT, Deep, answer_of
from results import table
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

STEPS = 200
_COUNTED_EPOCH = 3
"""The first ones compile and warm up."""


class Count(L.Callback):
    """Counts bytecodes between the start and the end of one epoch."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._epoch = 0

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        """Begin to count, in the frames that are running already, too."""
        self._epoch += 1
        if self._epoch == _COUNTED_EPOCH:
            sys.settrace(self._trace)
            frame: FrameType | None = sys._getframe()
            while frame is not None:
                self._watch(frame)
                frame = frame.f_back

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """Count no more."""
        if self._epoch == _COUNTED_EPOCH:
            sys.settrace(None)

    def _watch(self, frame: FrameType) -> None:
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = self._trace, True, False

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            self._watch(frame)
        elif event == "opcode" and sys.gettrace() is not None:
            code = frame.f_code
            file = code.co_filename.split("src/systolic/")[-1].split("site-packages/")[-1]
            self.counts[f"{file}: {code.co_name}"] += 1
        return self._trace


def counted(layers: int) -> dict[str, float]:
    """Bytecodes of a step by function."""
    data = TensorDataset(torch.randn(32 * STEPS, 16), torch.randint(0, 10, (32 * STEPS,)))
    count = Count()
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=_COUNTED_EPOCH, callbacks=[count], **quiet)
    trainer.fit(Deep(layers), DataLoader(data, batch_size=32, shuffle=True))
    return {name: number / STEPS for name, number in count.counts.most_common()}


def in_child(layers: int, checkout: Path) -> dict[str, float]:
    """`counted` in a process of its own, with the systolic of a checkout."""
    return answer_of([__file__, "--layers", str(layers), "--json"], [checkout / "src", ROOT / "benchmarks"])


def main() -> None:
    """Count, and print the functions with the most."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier systolic")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--functions", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print the counts of this systolic as JSON")
    given = parser.parse_args()
    if given.json:
        print(json.dumps(counted(given.layers)))
        return
    for checkout in [*([given.before.resolve()] if given.before else []), ROOT]:
        found = in_child(given.layers, checkout)
        rows = [[name, f"{number:.1f}"] for name, number in list(found.items())[: given.functions]]
        print(f"{checkout}: {sum(found.values()):.0f} bytecodes a step\n{table([['function', 'bytecodes'], *rows])}\n")


if __name__ == "__main__":
    main()
