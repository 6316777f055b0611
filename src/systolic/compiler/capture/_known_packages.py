"""Set-ups that packages make in the first step: made before it is traced, which would else be traced twice.

A table in which kinds of tensors are noted and hooks on modules are settings like any others: a step that fills the one or
registers the other at its first trace is traced again with them in place.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...utilities._torch_internals import FunctionalTensor
from .._capture_thread import replaced_everywhere


class SetUpIsAskedError(Exception):
    """A package sets something up in a step that is being traced: the trace must begin again after it has.

    Attributes:
        set_up: does it, outside of a trace.
    """

    def __init__(self, set_up: Callable[[], object]) -> None:
        super().__init__("a package sets something up")
        self.set_up = set_up


@contextlib.contextmanager
def set_ups_asked() -> Iterator[None]:
    """Inside the block, hooks that collect hidden states (transformers') are registered before a trace."""
    capturing, name = sys.modules.get("transformers.utils.output_capturing"), "maybe_install_capturing_hooks"
    if capturing is None or name not in vars(capturing):
        yield
        return
    original = vars(capturing)[name]

    def install(model: Any) -> None:
        if not getattr(model, "_output_capturing_hooks_installed", False):
            raise SetUpIsAskedError(functools.partial(original, model))

    with replaced_everywhere((capturing, name, install)):
        yield


def introduce_traced_tensors() -> None:
    """Let einops, where it is loaded, know the tensors of a trace as PyTorch's."""
    backends = sys.modules.get("einops._backends")
    known = vars(backends).get("_type2backend") if backends is not None else None
    if isinstance(known, dict) and FunctionalTensor not in known:
        known[FunctionalTensor] = vars(backends)["get_backend"](torch.empty(0))
