"""Notes on errors inside a step: what the batch was, since most of them come from one of another form than was thought."""

from __future__ import annotations

import re

import numpy as np
import torch

from ..compiler import GivenText, current_text

_MOST = 8
_PRODUCT = re.compile(r"same reduction dim, but got \[(.*)\] X \[(.*)\]")


def note_batch(error: Exception, step: str, batch: object) -> None:
    """Say in an error what a step was called with.

    Args:
        error: what it raised.
        step: its name, with that of the module.
        batch: what it got.
    """
    shapes = _PRODUCT.search(str(error))
    if shapes is not None:
        error.add_note(
            f"Matrices of shapes ({shapes[1]}) and ({shapes[2]}) cannot be multiplied: the last dimension of the first must be "
            "the first of the second."
        )
    note = f"`{step}` got the batch: {described(batch)}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def described(batch: object, depth: int = 0) -> str:
    """A batch by its structure, types and shapes.

    Example:
        >>> described((torch.zeros(8, 4), {"label": torch.zeros(8, dtype=torch.int64)}, None))
        "(Tensor(8, 4) of float32, {'label': Tensor(8) of int64}, None)"
    """
    if isinstance(batch, torch.Tensor):
        return f"Tensor({', '.join(map(str, batch.shape))}) of {str(batch.dtype).removeprefix('torch.')}"
    if isinstance(batch, np.ndarray):
        return f"ndarray{batch.shape} of {batch.dtype}"
    if isinstance(batch, GivenText):
        return repr(current_text(batch))[:60]
    if isinstance(batch, dict) and depth < 3:
        # past a dict that notes what is read of it: most errors of a trace are ways to another trace
        parts = [f"{key!r}: {described(value, depth + 1)}" for key, value in list(dict.items(batch))[:_MOST]]
        return "{" + ", ".join([*parts, *_rest(len(batch))]) + "}"
    if isinstance(batch, list | tuple) and depth < 3:
        parts = ", ".join([*(described(value, depth + 1) for value in batch[:_MOST]), *_rest(len(batch))])
        return f"[{parts}]" if isinstance(batch, list) else f"({parts}{',' if len(batch) == 1 else ''})"
    if batch is None or isinstance(batch, int | float | str):
        return repr(batch)[:60]
    return f"{type(batch).__name__}()"


def _rest(count: int) -> list[str]:
    return [f"... {count - _MOST} more"] if count > _MOST else []
