"""When device memory runs out: what was in it, and what to change."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import jax
import torch

from ..compiler import Engine
from ..exceptions import OutOfMemoryError
from ..utilities._entries import Entry, see
from ..utilities._out_of_memory import is_out_of_memory
from ._step_engine import innermost

if TYPE_CHECKING:
    from ._run import Run

# a compiler that does not fit a program says so in a table; its first lines are the largest allocations
_LINES = 25
_WAYS_ON = (
    "Options: a smaller batch_size, with accumulate_grad_batches for the same effective batch; "
    'precision="bf16-mixed" or "bf16-true"; remat="full", or torch.utils.checkpoint.checkpoint around the largest blocks; '
    "more cores. `systolic preflight` compiles the step for a TPU of your choice and says before the run whether it fits."
)


@contextlib.contextmanager
def memory_explained(run: Run) -> Iterator[None]:
    """Inside the block, XLA's errors about memory say what was allocated and what to change.

    Raises:
        OutOfMemoryError: the devices ran out of memory; holds XLA's text.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(_explanation(str(error), run)) from error


def _explanation(text: str, run: Run) -> str:
    lines = ["The devices ran out of memory.", *(f"  {line}" for line in text.splitlines()[:_LINES])]
    asked = re.search(r"allocating (\d+) bytes", text)
    if asked:
        lines.append(f"The allocation that failed: {_size(int(asked[1]))}.")
    lines.append("What this run needs on each device:")
    lines += [f"  {name:<18}{_size(amount)}" for name, amount in _allocated(run).items() if amount]
    return "\n".join([*lines, _WAYS_ON + see(Entry.OUT_OF_MEMORY)])


def _allocated(run: Run) -> dict[str, int]:
    """Bytes of what a run keeps on every device, and of what its largest program needs besides."""
    model = run.module
    states = (state.values() for optimizer in run.optimizers for state in optimizer.state.values())
    amounts = {
        "parameters": _bytes(model.parameters()),
        "buffers": _bytes(model.buffers()),
        "optimizer state": _bytes(value for values in states for value in values if isinstance(value, torch.Tensor)),
    }
    engines = map(innermost, run.engines.values())
    programs = [engine.temporary_bytes for engine in engines if isinstance(engine, Engine)]
    amounts["one step's values"] = max(programs, default=0)
    stats = run.config.devices[0].memory_stats() or {}
    amounts["the device has"] = stats.get("bytes_limit", 0)
    return amounts


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _size(amount: int) -> str:
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min(max(amount.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{amount / 2 ** (10 * power):,.1f} {units[power]}" if power else f"{amount} bytes"
