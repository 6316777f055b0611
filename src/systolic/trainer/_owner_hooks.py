"""Hooks around a run, of the module and the datamodule: each one action of the profiler, under Lightning's names."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

from ..core import LightningDataModule, LightningModule
from ..runtime import Placement
from ._common_start import share_generators
from ._meta_values import give_values, meta_dtypes
from ._signatures import called

if TYPE_CHECKING:
    from ._run import Run


def call_owner(run: Run, owner: LightningModule | LightningDataModule, name: str, **named: object) -> Any:
    """Call a hook.

    Args:
        run: the run, whose profiler measures it.
        owner: the module or the datamodule.
        name: the hook.
        **named: its arguments.

    Returns:
        What the hook returned.
    """
    with profiled_owner(run, owner, name):
        return called(getattr(owner, name), name, **named)


def profiled_owner(run: Run, owner: LightningModule | LightningDataModule, name: str) -> contextlib.AbstractContextManager[Any]:
    """The action of the profiler that is a hook of a module or datamodule."""
    kind = "LightningDataModule" if isinstance(owner, LightningDataModule) else "LightningModule"
    return run.profiler.profile(f"[{kind}]{type(owner).__name__}.{name}")


def configure_model(run: Run) -> None:
    """Let the module make its layers, in the run's precision, and convert it; hooks of old Lightning where they are written."""
    module, numerics = run.module, run.config.numerics
    with numerics.init_context():
        if _is_written(module, "configure_sharded_model"):
            call_owner(run, module, "configure_sharded_model")
        call_owner(run, module, "configure_model")
    dtypes = meta_dtypes(module)
    numerics.convert_module(module)
    if dtypes and run.placement_type is Placement:  # preflight compiles for tensors without values
        share_generators()
        give_values(module, dtypes, run.placement)
    if _is_written(module, "on_post_move_to_device"):
        call_owner(run, module, "on_post_move_to_device")


def _is_written(module: LightningModule, name: str) -> bool:
    """Whether the user wrote a method; what only wraps that of LightningModule is none."""
    method = inspect.unwrap(getattr(module, name))
    return getattr(method, "__func__", method) is not getattr(LightningModule, name)
