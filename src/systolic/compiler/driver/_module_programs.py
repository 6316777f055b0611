"""Calls of modules as programs, in Python code that is run as it is.

Code that must see values (it decodes tokens, counts words, writes files) cannot be part of a program. The modules that it calls
can: inside of `running`, the outermost call of a module on this thread is one program, on the devices and with the state of the
module there, and what it returns is an ordinary tensor on the host. A module that cannot be a program is run as it is, and the
modules that it calls are programs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import torch
from torch import nn

from ...runtime import Buffer, DeviceTensor, Placement, cells_of
from ...utilities._torch_internals import tree_leaves, tree_map_only
from .._errors import CaptureError
from ..capture import with_ordinary_tensors
from ._compilations import Compile
from ._jit import JitFunction

_MAX_PROGRAMS = 16
"""A module that is called with more kinds of arguments than this is run as it is: it would be compiled again and again."""


class ModulePrograms:
    """The programs of the modules that some code calls.

    Args:
        placement: the devices, with those other programs that use the modules.
        left_out: whether a module is run as it is.
        compiles: gets every compilation.
    """

    def __init__(self, placement: Placement, left_out: Callable[[nn.Module], bool], compiles: list[Compile]) -> None:
        self._placement, self._left_out, self._compiles = placement, left_out, compiles
        self._programs: dict[int, JitFunction[..., Any]] = {}
        self._plain: dict[int, nn.Module] = {}
        self._arrays: Mapping[int, tuple[torch.Tensor, int, jax.Array]] = {}

    @contextlib.contextmanager
    def running(self, on_devices: Mapping[int, tuple[torch.Tensor, int, jax.Array]]) -> Iterator[None]:
        """Inside, outermost calls of modules are programs.

        Args:
            on_devices: by id: tensors that are on the devices, too, with their version and array.
        """
        original, thread, self._arrays = nn.Module.__call__, threading.get_ident(), on_devices

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return original(module, *args, **kwargs)
            return self._call(original, call, module, args, kwargs)

        # of the class, as the call of an instance asks its class
        nn.Module.__call__ = call
        try:
            yield
        finally:
            nn.Module.__call__, self._arrays = original, {}

    def release(self) -> None:
        """Give the modules ordinary tensors again."""
        for program in self._programs.values():
            program.release()

    def _call(self, original: Callable[..., Any], own: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        if id(module) in self._plain or self._left_out(module) or self._wants_gradients(module, args, kwargs):
            return original(module, *args, **kwargs)
        program = self._programs.get(id(module))
        if program is None:
            program = self._programs[id(module)] = JitFunction(module, self._placement, gradients=False)
        nn.Module.__call__ = original  # what the module calls is part of its program
        known = len(program.compiles)
        try:
            given = tree_map_only(torch.Tensor, self._on_device, (args, kwargs))
            result = program(*given[0], **given[1])
        except Exception as error:
            if not program.failed_to_capture and not isinstance(error, CaptureError):
                raise
        else:
            if program.compile_count > _MAX_PROGRAMS:
                self._plain[id(module)] = module
            # host sync: what follows is ordinary Python, which may do anything with it
            return with_ordinary_tensors(result)
        finally:
            nn.Module.__call__ = own
            self._compiles += program.compiles[known:]
        self._plain[id(module)] = module
        return original(module, *args, **kwargs)

    def _wants_gradients(self, module: nn.Module, args: Any, kwargs: Any) -> bool:
        if not torch.is_grad_enabled():
            return False
        tensors = [*module.parameters(), *(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))]
        return any(tensor.requires_grad for tensor in tensors)

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        known = self._arrays.get(id(tensor))
        if known is None or known[0] is not tensor or known[1] != tensor._version:
            return tensor
        return DeviceTensor(cells_of(Buffer(known[2]), [(tensor.shape, tensor.dtype)])[0])
