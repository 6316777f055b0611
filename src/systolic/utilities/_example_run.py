"""Sizes and operations of a model's layers, seen while its example input runs through it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ._modes import keeping_modes

Size = str | list["Size"] | list[int]
"""The shape of a tensor, a list of such for several, or `"?"` for what has none."""

UNKNOWN = "?"


@dataclass
class ExampleRun:
    """Sizes and operations that one run of a model in evaluation mode shows.

    Attributes:
        sizes: shapes of what each layer was given and gave when it was first called, by its name.
        flops: of each layer, with those of the layers inside it; a multiplication and an addition count as two.
        total_flops: of the whole model.
    """

    sizes: dict[str, tuple[Size, Size]] = field(default_factory=dict)
    flops: dict[str, int] = field(default_factory=dict)
    total_flops: int = 0


def run_example(model: nn.Module, layers: Mapping[str, nn.Module], example: object) -> ExampleRun:
    """Run a model once, without gradients, and look at its layers.

    Args:
        model: the model; its modes of training and evaluation are what they were afterwards.
        layers: those to look at, by their names in the model.
        example: the argument of `forward`; a list or tuple of its arguments, or a dict of them by name.
    """
    seen = ExampleRun()
    # TorchScript's modules take no hooks
    watched = {name: layer for name, layer in layers.items() if not isinstance(layer, torch.jit.ScriptModule)}
    handles = [layer.register_forward_hook(_Sizes(seen, name), with_kwargs=True) for name, layer in watched.items()]
    counter = FlopCounterMode(display=False)
    try:
        with keeping_modes(model), torch.no_grad(), counter:
            _call(model.eval(), example)
    finally:
        for handle in handles:
            handle.remove()
    counts = counter.get_flop_counts()
    seen.flops = {name: sum(counts.get(f"{type(model).__name__}.{name}", {}).values()) for name in layers}
    seen.total_flops = counter.get_total_flops()
    return seen


class _Sizes:
    """Hook that keeps the shapes of a layer's first call."""

    def __init__(self, seen: ExampleRun, name: str) -> None:
        self._seen, self._name = seen, name

    def __call__(self, layer: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], out: object) -> None:
        given = (*args, *kwargs.values())
        self._seen.sizes.setdefault(self._name, (size_of(given[0] if len(given) == 1 else given), size_of(out)))


def size_of(value: object) -> Size:
    """The shape of a tensor, or those of the tensors in a list or tuple."""
    if isinstance(value, torch.Tensor):
        return list(value.shape)
    if isinstance(value, list | tuple):
        parts: Iterable[object] = value
        return [size_of(part) for part in parts]
    return UNKNOWN


def _call(model: nn.Module, example: object) -> None:
    if isinstance(example, list | tuple):
        model(*example)
    elif isinstance(example, dict):
        model(**example)
    else:
        model(example)
