"""Masks against packed sequences, which transformers makes of positions that it cannot look at while it is traced.

Without a cache (`use_cache=False`, gradient checkpointing) and without an attention mask, transformers asks of the positions
whether a row holds several sequences. Traced, it does not ask and makes the mask, which no attention kernel takes. Positions
that the model counts up by itself are known while it is traced: a row then is one sequence.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator

import torch

from .._capture_thread import replaced
from ._speculation import known_number

_MODULE, _FUNCTION = "transformers.masking_utils", "find_packed_sequence_indices"

_Find = Callable[[torch.Tensor], torch.Tensor | None]


@contextlib.contextmanager
def looking_at_positions() -> Iterator[None]:
    """Inside the block, transformers knows of rows that are one sequence, where it is there and has such a question."""
    module = sys.modules.get(_MODULE)
    original: _Find | None = getattr(module, _FUNCTION, None)
    with replaced(module, _FUNCTION, _looking(original)) if original is not None else contextlib.nullcontext():
        yield


def _looking(original: _Find) -> _Find:
    @functools.wraps(original)
    def find(position_ids: torch.Tensor) -> torch.Tensor | None:
        sequences = original(position_ids)
        if sequences is None:
            return None
        others = (sequences[:, -1] != 0).sum().item()
        known = known_number(others) if isinstance(others, torch.SymInt) else others
        return None if known == 0 else sequences

    return find
