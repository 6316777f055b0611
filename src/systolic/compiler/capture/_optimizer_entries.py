"""The entries of an optimizer's `state` for all parameters together: `self.state["k"] += 1`, as MADGRAD does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import torch


def of_parameters(state: Mapping[Any, Any]) -> list[Any]:
    """The entries of `optimizer.state` that belong to a parameter each."""
    return [value for key, value in state.items() if isinstance(key, torch.Tensor)]


class OptimizerEntries(MutableMapping[Any, Any]):
    """The entries of `optimizer.state` that belong to no parameter; those of the dict that the optimizer has at the time.

    While a step is traced that is another dict, with stand-ins for the parameters.

    Args:
        optimizer: whose they are.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def __getitem__(self, key: Any) -> Any:
        if key not in self._optimizer.state:  # it would make an entry for any key
            raise KeyError(key)
        return self._optimizer.state[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._optimizer.state[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._optimizer.state[key]

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key in self._optimizer.state if not isinstance(key, torch.Tensor)])

    def __len__(self) -> int:
        return sum(1 for _ in self)
