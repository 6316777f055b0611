"""Parameters that stand at several places of a module."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def find_shared_parameters(module: nn.Module) -> list[list[str]]:
    """Find the parameters that a module has at several places.

    Args:
        module: the module.

    Returns:
        The names of each such parameter.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        >>> model[1].weight = model[0].weight
        >>> find_shared_parameters(model)
        [['0.weight', '1.weight']]
    """
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [found for found in names.values() if len(found) > 1]


def set_shared_parameters(module: nn.Module, shared_params: Sequence[Sequence[str]]) -> nn.Module:
    """Put one parameter at several places, the first of each group.

    Args:
        module: is changed.
        shared_params: groups of names, as `find_shared_parameters` gives them.

    Returns:
        The module.
    """
    for first, *others in shared_params:
        parameter = module.get_parameter(first)
        for name in others:
            owner, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(owner), attribute, parameter)
    return module
