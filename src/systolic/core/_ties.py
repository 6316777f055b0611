"""Tied weights: one parameter under several names, before the hooks of a run and after them."""

from __future__ import annotations

import warnings

from torch import nn


class Ties:
    """The names of a module's parameters that stand for the same tensor.

    Example:
        >>> import torch
        >>> from systolic.core._ties import Ties
        >>> model = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9, bias=False))
        >>> model[1].weight = model[0].weight
        >>> Ties(model).groups
        [['0.weight', '1.weight']]
    """

    def __init__(self, module: nn.Module) -> None:
        self.groups = [names for names in _names(module).values() if len(names) > 1]

    def warn_if_lost(self, module: nn.Module, since: str) -> None:
        """Warn of parameters that were one tensor and are several now, by name.

        Args:
            module: the module as it is now.
            since: what ran in between, for the message.
        """
        tensor_of = {name: tensor for tensor, names in _names(module).items() for name in names}
        for group in self.groups:
            left = [name for name in group if name in tensor_of]
            tensors = dict.fromkeys(tensor_of[name] for name in left)
            if len(tensors) > 1:
                apart = [[name for name in left if tensor_of[name] == tensor] for tensor in tensors]
                warnings.warn(
                    f"The parameters {_listed(left)} were one tensor before {since}, and are {len(tensors)} after it "
                    f"({' | '.join(_listed(names) for names in apart)}): {len(tensors) - 1} more to train and to save. "
                    f"If they shall stay tied, assign one to the other in the hook `on_post_move_to_device`: "
                    f"self.{apart[1][0]} = self.{apart[0][0]}",
                    stacklevel=2,
                )


def _names(module: nn.Module) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(name)
    return found


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))
