"""Variables that hold tensors: which tensor it is counts, not what is in it, which a program reads before every step anyway."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch

_numbers = itertools.count()
_known: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}


class TensorVariables(Mapping[str, str]):
    """The tensors of some variables, each as a text that no other tensor has.

    They stay what they are: as state of a step they would lie on the devices, and other code, such as a loader's, may use them.

    Args:
        holder: the variables.
    """

    def __init__(self, holder: Mapping[str, Any]) -> None:
        self._holder = holder

    def __getitem__(self, name: str) -> str:
        value = self._holder[name]
        return _text_of(value) if isinstance(value, torch.Tensor) else "no tensor"

    def __setitem__(self, name: str, value: object) -> None:
        """Nothing: a walk that puts everything back has not changed the variable."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._holder)

    def __len__(self) -> int:
        return len(self._holder)


def _text_of(tensor: torch.Tensor) -> str:
    found = _known.get(id(tensor))
    if found is None or found[0]() is not tensor:  # an id may be that of an earlier tensor
        found = _known[id(tensor)] = (weakref.ref(tensor), f"tensor {next(_numbers)}")
    return found[1]
