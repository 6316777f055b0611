"""Tables in which packages note which kinds of tensors they have met, filled before a step is traced.

Such a table is a setting like any other: a step that fills it at its first trace is traced again with the table full.
"""

from __future__ import annotations

import sys

import torch

from ...utilities._torch_internals import FunctionalTensor


def introduce_traced_tensors() -> None:
    """Let einops, where it is loaded, know the tensors of a trace as PyTorch's."""
    backends = sys.modules.get("einops._backends")
    known = vars(backends).get("_type2backend") if backends is not None else None
    if isinstance(known, dict) and FunctionalTensor not in known:
        known[FunctionalTensor] = vars(backends)["get_backend"](torch.empty(0))
