"""Comparison of all processes of a run before they train: versions, code, seed, settings, tensors, data."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from ..data import has_len, num_batches
from ..distributed import process_count, require_same
from ..utilities._leaves import is_sparse

if TYPE_CHECKING:
    from ._run import Run
    from ._stage import Stage

_PACKAGES = ("systolic", "torch", "jax", "jaxlib", "numpy")
_PLAIN = (bool, int, float, str, type(None))
_OF_THE_HOST = {"default_root_dir", "advice", "accelerator"}
"""Settings that processes may have each of their own."""


def require_same_start(run: Run) -> None:
    """Compare versions, seed, code and settings.

    Args:
        run: that begins.

    Raises:
        MisconfigurationException: the processes differ; says who has what.
    """
    if process_count() == 1 or run.call is None:
        return
    versions = {name: sys.modules[name].__version__ for name in _PACKAGES} | {"Python": platform.python_version()}
    require_same("their versions", versions, "Install the same versions on all hosts.")
    require_same("the method that runs", {"it": f"Trainer.{run.call.stage.fn.value}"}, "Call the same methods everywhere.")
    require_same("their code", dict(_code(run)), "Copy the same files to all hosts.")
    advice = "Seed all alike: what differs by process is the data that each reads, and systolic sees to that."
    require_same("their seed", {"seed_everything": os.environ.get("PL_GLOBAL_SEED", "not called")}, advice)
    require_same("the Trainer's settings", dict(_settings(run)), "Make the Trainer with the same arguments everywhere.")


def require_same_weights(module: nn.Module) -> None:
    """Compare names, shapes and types of parameters and buffers, before the first process's are sent to all.

    Args:
        module: set up.

    Raises:
        MisconfigurationException: the processes differ; says who has what.
    """
    if process_count() == 1:
        return
    named = [*module.named_parameters(), *module.named_buffers()]
    found = {name: f"{t.dtype} {'lazy' if nn.parameter.is_lazy(t) else _extent(t)}" for name, t in named}
    require_same(f"the tensors of {type(module).__name__}", found, "Make the same module everywhere.")


def _extent(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)}, {tensor._nnz()} elements" if is_sparse(tensor) else f"{tuple(tensor.shape)}"


def require_same_data(stage: Stage, loaders: Sequence[Any]) -> None:
    """Compare how much data there is.

    Args:
        stage: whose loaders they are.
        loaders: as they will be read.

    Raises:
        MisconfigurationException: the processes differ; says who has what.
    """
    if process_count() == 1:
        return
    found: dict[str, object] = {"the number of loaders": len(loaders)}
    for number, loader in enumerate(loaders):
        found |= {f"{what} of loader {number}": value for what, value in _sizes(loader)}
    advice = "Give every process the whole data set: each reads its part of every batch by itself."
    require_same(f"their data for {stage.fn.value}" if stage.data != "val" else "their validation data", found, advice)


def _sizes(loader: Any) -> Iterator[tuple[str, object]]:
    yield "the type", type(loader).__name__
    yield "the number of batches", num_batches(loader)
    if isinstance(loader, DataLoader):
        yield "the number of samples", len(loader.dataset) if has_len(loader.dataset) else "unknown"  # type: ignore[arg-type]
        yield "the batch size", getattr(loader.batch_sampler, "batch_size", loader.batch_size)
        yield "the sampler", type(loader.sampler).__name__


def _settings(run: Run) -> Iterator[tuple[str, object]]:
    for field in dataclasses.fields(run.config):
        value = getattr(run.config, field.name)
        if isinstance(value, _PLAIN) and field.name not in _OF_THE_HOST:
            yield field.name, repr(value)
    yield "strategy", repr(run.config.sharding)


def _code(run: Run) -> Iterator[tuple[str, str]]:
    """Digests of the files that define what runs: the script, the module with its layers, the datamodule, and their bases."""
    objects = [run.module, *run.module.modules(), run.datamodule]
    classes = dict.fromkeys(base for one in objects if one is not None for base in type(one).__mro__)
    names = dict.fromkeys(["__main__", *(cls.__module__ for cls in classes)])
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and Path(file).suffix == ".py" and Path(file).is_file():
            yield Path(file).name if name == "__main__" else name, hashlib.sha1(Path(file).read_bytes()).hexdigest()[:12]
