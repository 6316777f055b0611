"""A trained module in other formats: ONNX, TorchScript."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..exceptions import MisconfigurationException
from ..utilities._modes import keeping_modes
from ..utilities.rank_zero import rank_zero_deprecation


class Exported(nn.Module):
    """Gives a module `to_onnx` and `to_torchscript`; both export what `forward` does in eval mode, on the CPU."""

    example_input_array: Any

    @torch.no_grad()
    def to_onnx(self, file_path: Any = None, input_sample: object = None, **kwargs: Any) -> Any:
        """Export to ONNX.

        Args:
            file_path: where to; None for the exporter's result alone.
            input_sample: an input of `forward`; default: `example_input_array`.
            **kwargs: for `torch.onnx.export`.

        Raises:
            ModuleNotFoundError: a package that the exporter needs is not installed.
            ValueError: there is no input.
        """
        for package in ("onnx", "onnxscript") if kwargs.get("dynamo", True) else ("onnx",):
            if importlib.util.find_spec(package) is None:
                raise ModuleNotFoundError(f"`{type(self).__name__}.to_onnx()` requires `{package}`: pip install {package}")
        sample = self._sample("to_onnx", input_sample)
        with _evaluating(self):
            path = str(file_path) if isinstance(file_path, Path) else file_path
            return torch.onnx.export(self, sample, path, **kwargs)

    @torch.no_grad()
    def to_torchscript(
        self,
        file_path: str | os.PathLike[str] | None = None,
        method: str = "script",
        example_inputs: object = None,
        **kwargs: Any,
    ) -> torch.jit.ScriptModule:
        """Export to TorchScript, which PyTorch and Lightning are about to drop; `torch.export.export` is what comes after it.

        Args:
            file_path: where to save it; None for nowhere.
            method: "script", or "trace" with an input.
            example_inputs: the input to trace with; default: `example_input_array`.
            **kwargs: for `torch.jit.script` or `torch.jit.trace`.

        Raises:
            ValueError: another method, or no input to trace with.
        """
        rank_zero_deprecation(
            "`LightningModule.to_torchscript` has been deprecated in v2.7 and will be removed in v2.8 of Lightning, as PyTorch "
            "deprecates TorchScript. Export with torch.export.export(module, inputs)."
        )
        with _evaluating(self):
            if method == "script":
                exported: Any = torch.jit.script(self, **kwargs)
            elif method == "trace":
                exported = torch.jit.trace(self, self._sample("to_torchscript", example_inputs), **kwargs)
            else:
                raise ValueError(f"The 'method' parameter only supports 'script' or 'trace', but value given was: {method}")
        if file_path is not None:
            torch.jit.save(exported, str(file_path))
        return exported

    def to_tensorrt(self, *args: Any, **kwargs: Any) -> Any:
        """Raise: TensorRT is for NVIDIA GPUs; export to ONNX, which it reads."""
        raise MisconfigurationException(
            f"{type(self).__name__}.to_tensorrt() is not supported. Export with to_onnx(path) and give the file to TensorRT."
        )

    def _sample(self, method: str, given: object) -> Any:
        sample = self.example_input_array if given is None else given
        if sample is None:
            raise ValueError(
                f"{type(self).__name__}.{method}() requires either `example_inputs` or `model.example_input_array` to be set."
            )
        return sample


_EXPORTING = ContextVar("exporting", default=False)


def is_exporting() -> bool:
    """Whether a module is exported here: TorchScript asks for all of its properties, those that raise included."""
    return _EXPORTING.get()


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Inside, a module that belongs to no Trainer says so by None, and not by an error."""
    before = _EXPORTING.set(True)
    try:
        yield
    finally:
        _EXPORTING.reset(before)


@contextlib.contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    with keeping_modes(module), exporting():
        module.eval()
        yield
