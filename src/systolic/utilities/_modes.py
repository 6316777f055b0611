"""Train and eval mode of a module and all that is in it, kept over a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def keeping_modes(module: nn.Module) -> Iterator[None]:
    """Afterwards every submodule is in the mode in which it was."""
    modes = [(submodule, submodule.training) for submodule in module.modules()]
    try:
        yield
    finally:
        for submodule, training in modes:
            submodule.training = training
