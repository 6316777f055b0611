"""Draws from a generator of one's own, which lives on the host: a program has none."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ...utilities._torch_internals import OpOverload


@functools.cache
def takes_generator(op: OpOverload) -> bool:
    """Whether an op may be given a generator to draw from."""
    return any(argument.name == "generator" for argument in op._schema.arguments)


def own_generator(*_: object, generator: Any = None, **__: object) -> str | None:
    """The reason against a call that is given another generator than PyTorch's own; None where it is not."""
    if generator is None or generator is torch.default_generator:
        return None
    return (
        "it draws from a generator of its own, which lives on the host and is not there when the program runs. Leave out "
        "`generator=`: `seed_everything` decides what is drawn; or draw in the dataset, or in a hook outside of the step"
    )
