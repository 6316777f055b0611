"""Tensors of the state that user code reaches by a way which the survey does not know."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only


class Stragglers(TorchFunctionMode):
    """While tracing, replace a state tensor by its stand-in wherever it is used (a closure, a plain object)."""

    def __init__(self) -> None:
        super().__init__()
        self.stand_ins: dict[int, torch.Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with stand-ins for state tensors."""
        kwargs = kwargs or {}
        if any(id(a) in self.stand_ins for a in args) or any(id(a) in self.stand_ins for a in kwargs.values()):
            args, kwargs = tree_map_only(torch.Tensor, lambda t: self.stand_ins.get(id(t), t), (args, kwargs))
        return func(*args, **kwargs)
