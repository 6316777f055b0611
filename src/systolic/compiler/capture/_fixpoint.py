"""The step that repeats, found by capturing alone: optimizer state and gradients are there, as after some steps."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from typing import Any

import torch
from torch import nn

from ._call import Captured
from ._effects import Gradient, HostCall
from ._hook_tables import hook_tables
from ._object_graph import ObjectGraph, restoring
from ._optimizer_state import fill_first_state, forget_state
from ._output_tree import OutputTree
from ._slots import Slot
from ._symbols import Number

_MOST_CAPTURES = 3
"""A step that still leaves something new in Python objects after this many (a counter) is taken as it is."""


def steady(roots: MutableMapping[str, Any], numbers: dict[str, Number], capture: Callable[[], Captured]) -> Captured:
    """Capture a step again and again until what it leaves behind does not change the next one.

    Args:
        roots: the objects that the step uses, by name; afterwards they are as they were.
        numbers: the Python numbers that the step is called with.
        capture: captures the step with the objects as they are at the moment.
    """
    with _restoring(roots):
        guessed = [(optimizer, fill_first_state(optimizer)) for optimizer in ObjectGraph(roots).optimizers().values()]
        captured = capture()
        if forget_unused(guessed, captured):
            captured = capture()
        for _ in range(_MOST_CAPTURES - 1):
            if not _changes_objects(captured):
                break
            before = str(captured.graph)
            _leave_effects(captured, numbers)
            captured = capture()
            # a list of losses leaves an effect in every step: waiting for none would capture as often as it may, for nothing
            if str(captured.graph) == before:
                break
        return dataclasses.replace(captured, slots=[_described(slot) for slot in captured.slots])


def _described(slot: Slot) -> Slot:
    """A slot with a tensor that has no values: the objects are free to change."""
    tensor = slot.tensor.detach().to("meta")
    return Slot(
        nn.Parameter(tensor, slot.tensor.requires_grad) if isinstance(slot.tensor, nn.Parameter) else tensor,
        slot.paths,
        slot.grad_of,
    )


def forget_unused(guessed: list[tuple[torch.optim.Optimizer, list[torch.Tensor]]], captured: Captured) -> bool:
    """Drop first states that the step did not touch: eager PyTorch creates none for parameters without gradient."""
    touched = {id(captured.slots[index].tensor) for index in captured.slot_outputs}
    forgotten = False
    for optimizer, parameters in guessed:
        unused = [p for p in parameters if not any(id(t) in touched for t in optimizer.state[p].values())]
        forget_state(optimizer, unused)
        forgotten = forgotten or bool(unused)
    return forgotten


def _changes_objects(captured: Captured) -> bool:
    return any(not isinstance(effect, HostCall) for effect in captured.effects)


def _leave_effects(captured: Captured, numbers: dict[str, Number]) -> None:
    """Leave in Python objects what the step would leave there, with tensors of zeros that take no memory."""
    outputs = next(iter(reversed(captured.graph.nodes))).args[0]
    symbols = [*numbers.values(), *(captured.objects.values[path] for path in captured.symbol_paths)]

    def filled_on(device: str, tree: OutputTree) -> Any:
        def zeros(index: int) -> torch.Tensor:
            value = outputs[index].meta["val"]
            return torch.zeros((), dtype=value.dtype, device=device).expand(value.shape)

        return tree.fill(zeros, lambda index: 0, symbols)

    for effect in captured.effects:
        if not isinstance(effect, HostCall):
            # PyTorch takes a gradient from the parameter's device only; preflight asks of parameters without values, too
            device = "meta" if isinstance(effect, Gradient) and effect.parameter.is_meta else "cpu"
            effect.apply(partial(filled_on, device))


@contextlib.contextmanager
def _restoring(roots: MutableMapping[str, Any]) -> Iterator[None]:
    objects = ObjectGraph(roots)
    states = [(optimizer, dict(optimizer.state)) for optimizer in objects.optimizers().values()]
    leaves = [(t, t.requires_grad, t.grad, dict(hook_tables(t))) for t, _ in objects.slots() if t.is_leaf]
    try:
        with restoring(objects):
            yield
    finally:
        for optimizer, state in states:
            optimizer.state.clear()
            optimizer.state.update(state)
        for tensor, requires_grad, gradient, hooks in leaves:
            tensor.requires_grad_(requires_grad).grad = gradient
            for name, _ in list(hook_tables(tensor)):
                setattr(tensor, name, hooks.get(name))
