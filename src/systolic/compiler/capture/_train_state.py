"""The state of a step by name: what its tensors are called, what each is, and how large it is."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...runtime import DeviceTensor
from ...sharding import StateEntry, StateKind
from ._object_graph import ObjectGraph, Path, describe
from ._slots import Slot, slots_of

_MODEL = "model."
"""The root under which a Trainer's module stands; its tensors have the names of `module.named_parameters()`."""


@dataclass(frozen=True)
class TrainState:
    """Every tensor that a step reads or writes, in the order of discovery; a tied one stands there once.

    Attributes:
        entries: name, shape and kind of each.
        tensors: the tensors themselves, on the devices while a run is under way.

    Example:
        >>> import torch
        >>> from systolic.compiler import TrainState
        >>> state = TrainState.of({"model": torch.nn.Linear(3, 2)})
        >>> [entry.name for entry in state.entries], state.bytes("parameter")
        (['weight', 'bias'], 32)
    """

    entries: tuple[StateEntry, ...]
    tensors: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, roots: MutableMapping[str, Any]) -> TrainState:
        """The state below some objects.

        Args:
            roots: modules, optimizers and what else a step uses, by name; the module of a Trainer is "model".
        """
        return cls.of_slots(slots_of(ObjectGraph(roots)))

    @classmethod
    def of_slots(cls, slots: Sequence[Slot]) -> TrainState:
        """The state that a captured step was traced with."""
        return cls(tuple(_entries(slots)), tuple(slot.tensor for slot in slots))

    def bytes(self, *kinds: StateKind) -> int:
        """Bytes of the tensors of these kinds, on one device if every device holds them whole; without kinds: of all."""
        return sum(t.numel() * t.element_size() for _, t in self._chosen(kinds))

    def count(self, *kinds: StateKind) -> int:
        """How many numbers the tensors of these kinds hold; without kinds: all."""
        return sum(t.numel() for _, t in self._chosen(kinds))

    def snapshot(self, *kinds: StateKind) -> dict[str, torch.Tensor]:
        """Copies on the host by name, whole where the devices hold parts; waits for the devices."""
        return {e.name: t._cell.snapshot() if isinstance(t, DeviceTensor) else t.clone() for e, t in self._chosen(kinds)}

    def restore(self, values: MutableMapping[str, torch.Tensor]) -> None:
        """Put back what `snapshot` gave; names that are not in it keep their values.

        Raises:
            ValueError: a value has another shape, or a name is not part of the state.
        """
        known = {entry.name: tensor for entry, tensor in zip(self.entries, self.tensors, strict=True)}
        for name, value in values.items():
            if name not in known or known[name].shape != value.shape:
                has = f"has the shape {tuple(known[name].shape)}" if name in known else "is not part of the state"
                raise ValueError(f"Cannot restore {name} of shape {tuple(value.shape)}: {name} {has}.")
            with torch.no_grad():
                known[name].copy_(value)

    def _chosen(self, kinds: Sequence[StateKind]) -> Iterator[tuple[StateEntry, torch.Tensor]]:
        for entry, tensor in zip(self.entries, self.tensors, strict=True):
            if not kinds or entry.kind in kinds:
                yield entry, tensor


def _entries(slots: Sequence[Slot]) -> Iterator[StateEntry]:
    parameters = _parameters_by_state_path(slots)
    for slot in slots:
        shape = tuple(slot.tensor.shape)
        if slot.grad_of is not None:
            owner = slots[slot.grad_of]
            name = _name(owner.paths[0])
            yield StateEntry(f"{name}.grad", shape, "gradient", name, tuple(owner.tensor.shape))
        elif (of := parameters.get(slot.paths[0][:3])) is not None:
            optimizer, name = slot.paths[0][0], _name(of.paths[0])
            key = ".".join(map(str, slot.paths[0][3:]))
            yield StateEntry(f"{optimizer}.{key}.{name}", shape, "optimizer", name, tuple(of.tensor.shape))
        else:
            kind, name = _kind(slot.paths[0]), _name(slot.paths[0])
            is_parameter = kind == "parameter"
            yield StateEntry(name, shape, kind, name if is_parameter else "", shape if is_parameter else ())


def _parameters_by_state_path(slots: Sequence[Slot]) -> dict[Path, Slot]:
    """The parameter that an optimizer's state belongs to, by the beginning of the state's path: (optimizer, "state", number).

    PyTorch numbers the parameters of an optimizer through all of its groups.
    """
    found: dict[str, list[tuple[tuple[int, int], Slot]]] = {}
    for slot in slots:
        for path in slot.paths:
            if len(path) == 5 and path[1] == "param_groups" and path[3] == "params":
                found.setdefault(path[0], []).append(((path[2], path[4]), slot))
    numbered = {root: [slot for _, slot in sorted(owned, key=lambda one: one[0])] for root, owned in found.items()}
    return {(root, "state", number): slot for root, owned in numbered.items() for number, slot in enumerate(owned)}


def _kind(path: Path) -> StateKind:
    if "_parameters" in path:
        return "parameter"
    return "buffer" if "_buffers" in path else "other"


def _name(path: Path) -> str:
    return describe(path).removeprefix(_MODEL)
