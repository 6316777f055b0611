"""Methods of the user that do not take what they are called with: named, with how to write them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..callbacks import Callback
from ..core import LightningDataModule, LightningModule
from ..exceptions import MisconfigurationException, PossibleUserWarning
from ..utilities._overrides import overrides
from ..utilities._suggest import one_slip_away
from ._batch_iterator import asks_for_iterator
from ._stage import Stage

R = TypeVar("R")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def require_steps(model: LightningModule, stages: Sequence[Stage]) -> None:
    """Refuse steps that cannot be called with a batch and its number.

    Args:
        model: the user's module.
        stages: those whose steps will run.

    Raises:
        TypeError: a step is no method, or takes other arguments.
        MisconfigurationException: a step wants the loader's iterator and something beside it.
    """
    for stage in stages:
        if overrides(model, stage.step, LightningModule):
            _require_step(model, stage)


def _require_step(model: LightningModule, stage: Stage) -> None:
    method, name = getattr(model, stage.step), f"{type(model).__name__}.{stage.step}"
    if not callable(method):
        raise TypeError(f"`{name}` must be a method. Received: {method!r} of type {type(method).__name__}.")
    parameters = list(inspect.signature(method).parameters.values())
    if asks_for_iterator(method) and len(parameters) > 1:
        raise MisconfigurationException(
            f"`{name}` asks for `dataloader_iter`, which gives the batch and both indices. Expected: `{stage.step}(self, "
            f"dataloader_iter)`, and `batch, batch_idx, dataloader_idx = next(dataloader_iter)` in it. Received: "
            f"`{stage.step}{_with_self(method)}`."
        )
    takes_batch = any(p.kind in (*_POSITIONAL, p.VAR_POSITIONAL) for p in parameters)
    required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    too_many = len(required) > 3 or (stage is Stage.FIT and any(p.name != "dataloader_idx" for p in required[2:]))
    if not takes_batch or too_many or any(p.kind is p.KEYWORD_ONLY for p in required):
        index = "" if stage is Stage.FIT else " and, with several loaders, `dataloader_idx=0`"
        raise TypeError(
            f"`{name}` gets the batch, and if it takes it the number of the batch: expected "
            f"`{stage.step}(self, batch, batch_idx)`{index}. Received: `{stage.step}{_with_self(method)}`."
        )


def called(hook: Callable[..., R], name: str, *passed: object, **named: object) -> R:
    """Call a hook.

    Args:
        hook: the user's method.
        name: what it is called.
        passed: its arguments.
        named: those that are passed by name.

    Raises:
        TypeError: it does not take them; says which hook, and what it should take.
    """
    try:
        return hook(*passed, **named)
    except TypeError as error:
        try:
            inspect.signature(hook).bind(*passed, **named)
        except TypeError:
            raise _misfit(hook, name, error) from error
        raise


def _misfit(hook: Callable[..., object], name: str, error: TypeError) -> TypeError:
    owner = getattr(inspect.unwrap(hook), "__self__", None)
    base = next((b for b in (LightningModule, LightningDataModule, Callback) if isinstance(owner, b)), Callback)
    expected = f"Expected `{name}{inspect.signature(getattr(base, name))}`. " if hasattr(base, name) else ""
    return TypeError(
        f"The hook `{name}` of {'a callback' if owner is None else type(owner).__name__} does not take what it is called with: "
        f"{error}. {expected}Received: `{name}{_with_self(hook)}`."
    )


def _with_self(method: Callable[..., object]) -> str:
    names = [str(p).split(":")[0].split(" =")[0] for p in inspect.signature(method).parameters.values()]
    keyword_only = any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(method).parameters.values())
    return f"(self, {'*, ' if keyword_only else ''}{', '.join(names)})" if names else "(self)"


def warn_of_misspelt(owner: LightningModule | Callback | LightningDataModule) -> None:
    """Warn of methods that are called almost like a hook which is not overridden: nothing calls them.

    Args:
        owner: the user's module, datamodule or callback.
    """
    base = next(b for b in (LightningModule, LightningDataModule, Callback) if isinstance(owner, b))
    known = [name for name in dir(base) if not name.startswith("_") and callable(getattr(base, name, None))]
    hooks = [
        name for name in known if name.startswith(("on_", "configure_")) or name.endswith(("_step", "_dataloader", "setup"))
    ]
    for cls in type(owner).__mro__:
        if cls.__module__.partition(".")[0] in ("systolic", "torch", "lightning", "pytorch_lightning", "builtins"):
            continue
        for name in vars(cls):
            meant = None if name in known or name.startswith("_") else one_slip_away(name, hooks)
            if meant is not None and not overrides(owner, meant, base) and callable(vars(cls)[name]):
                warnings.warn(
                    f"`{cls.__name__}.{name}` is no hook, and nothing calls it. Did you mean {meant!r}? Rename it, or begin "
                    "the name of a method of your own with an underscore.",
                    PossibleUserWarning,
                    stacklevel=4,
                )
