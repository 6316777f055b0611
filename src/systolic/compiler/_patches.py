"""What is different inside PyTorch while a step is being captured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.compiler
from torch._subclasses.functional_tensor import FunctionalTensor


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Switch PyTorch to the behaviour that a captured step needs, and back."""
    with contextlib.ExitStack() as stack:
        # optimizers then keep lr and step as tensors instead of asking for their values
        stack.enter_context(_attribute(torch.compiler, "_is_compiling_flag", True))
        stack.enter_context(_attribute(FunctionalTensor, "__repr__", _traced_repr))
        for owner, name, replacement in REPLACEMENTS:
            stack.enter_context(_attribute(owner, name, replacement))
        for context in CONTEXTS:
            stack.enter_context(context())
        yield


REPLACEMENTS: list[tuple[Any, str, Any]] = []
"""Functions of PyTorch to capture as one op: (module, name, replacement). Filled by the modules that define the ops."""

CONTEXTS: list[Callable[[], contextlib.AbstractContextManager[None]]] = []
"""What else holds during a capture. Filled by the same modules."""


@contextlib.contextmanager
def _attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _traced_repr(self: FunctionalTensor, *, tensor_contents: Any = None) -> str:
    return (
        f"tensor(shape={tuple(self.shape)}, dtype={self.dtype}; being traced: it has no value yet. The step is compiled "
        "once, and this line runs only then. To see values use self.log(...), a callback, or Trainer(compile=False))"
    )
