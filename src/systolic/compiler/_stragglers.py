"""Tensors that user code reaches by a way which the survey does not know: a closure, a plain object."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from ._errors import CaptureError


class Stragglers(TorchFunctionMode):
    """While the user's code is traced, use a stand-in for every ordinary tensor: the state's own, or a constant's.

    Attributes:
        stand_ins: by id of a state tensor.
        active: whether the user's code is running.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stand_ins: dict[int, torch.Tensor] = {}
        self.active = False
        self._constants: dict[int, tuple[torch.Tensor, FunctionalTensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with stand-ins."""
        kwargs = kwargs or {}
        if self.active:
            args, kwargs = tree_map_only(torch.Tensor, self._stand_in, (args, kwargs))
        return func(*args, **kwargs)

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, (FunctionalTensor, FakeTensor)):
            return tensor
        if id(tensor) in self.stand_ins:
            return self.stand_ins[id(tensor)]
        if _torch._is_functional_tensor(tensor) or torch._C._get_dispatch_mode(_FUNCTIONAL) is None:
            return tensor  # the tracer's own work on its tensors
        if id(tensor) not in self._constants:
            self._constants[id(tensor)] = (tensor, FunctionalTensor.to_functional(tensor.detach()))
        return self._constants[id(tensor)][1]

    def require_unchanged(self) -> None:
        """Raise when the step wrote to a tensor that belongs to none of the objects it was given."""
        for tensor, stand_in in self._constants.values():
            _torch._sync(stand_in)
            if _torch._functionalize_has_data_mutation(stand_in.elem):
                raise CaptureError(
                    f"The step changes a tensor of shape {tuple(tensor.shape)} in place that is not part of its modules "
                    "or optimizers, so the change would be lost. Register the tensor as a buffer of the module, or "
                    "return the new value."
                )


# PyTorch's own interface to functionalization, which its type stubs leave out
_torch: Any = torch
_FUNCTIONAL = torch._C._TorchDispatchModeKey.FUNCTIONAL
