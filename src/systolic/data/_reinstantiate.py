"""Making a DataLoader like a given one, subclasses included."""

from __future__ import annotations

import inspect
import re
from typing import Any

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from ..exceptions import MisconfigurationException

_KEPT = (
    "dataset", "collate_fn", "num_workers", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
    "prefetch_factor", "persistent_workers", "in_order",
)  # fmt: skip
_KNOWN = frozenset(inspect.signature(DataLoader.__init__).parameters)
_TWICE = re.compile(r"multiple values for (?:keyword )?argument '(\w+)'")


def rebuild_loader(loader: DataLoader[Any], **changes: Any) -> DataLoader[Any]:
    """A loader of the same class with the same arguments, except for `changes`.

    Raises:
        MisconfigurationException: the constructor of a subclass cannot be called again from what the loader tells.
    """
    arguments = {name: getattr(loader, name) for name in _KEPT}
    # Nothing here is pinned: the batch goes to a JAX device, for which CUDA's pinned memory does nothing.
    arguments |= {"pin_memory": False, **changes}
    if type(loader).__init__ is DataLoader.__init__:
        return type(loader)(**arguments)
    return _rebuild_subclass(loader, arguments, changes)


def _rebuild_subclass(loader: DataLoader[Any], arguments: dict[str, Any], changes: dict[str, Any]) -> DataLoader[Any]:
    given = _arguments_of_subclass(loader, arguments)
    while True:
        try:
            clone = type(loader)(**given)
        except Exception as error:
            # A subclass that fixes an argument itself and passes `**kwargs` on receives that argument twice.
            repeated = _TWICE.search(str(error)) if isinstance(error, TypeError) else None
            if repeated is None or repeated.group(1) not in given:
                raise _cannot_rebuild(loader, f"calling it again failed with {error!r}") from error
            del given[repeated.group(1)]
            continue
        _check_clone(loader, clone, changes)
        return clone


def _arguments_of_subclass(loader: DataLoader[Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments for the subclass's constructor; its own ones are read from attributes of the same name."""
    parameters = list(inspect.signature(type(loader).__init__).parameters.values())[1:]
    passes_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    given = dict(arguments) if passes_on else {}
    missing = []
    for parameter in parameters:
        name = parameter.name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in arguments:
            given[name] = arguments[name]
        elif name == "shuffle":
            takes_sampler = passes_on or any(parameter.name == "sampler" for parameter in parameters)
            given[name] = not takes_sampler and isinstance(loader.sampler, RandomSampler)
        elif name in _KNOWN:
            continue
        elif hasattr(loader, name) or hasattr(loader, f"_{name}"):
            given[name] = getattr(loader, name) if hasattr(loader, name) else getattr(loader, f"_{name}")
        else:
            missing.append(name)
    if missing:
        raise _cannot_rebuild(loader, f"its arguments {missing} are not attributes of the loader")
    return given


def _check_clone(loader: DataLoader[Any], clone: DataLoader[Any], changes: dict[str, Any]) -> None:
    """Refuse a loader whose constructor went its own way."""
    expected = {"num_workers": loader.num_workers, "drop_last": loader.drop_last, **changes}
    wrong = [name for name, value in expected.items() if getattr(clone, name) != value and name != "sampler"]
    # A constructor may make its own plain sampler; any other must be the one that it was given.
    sampler = changes.get("sampler")
    makes_its_own = type(clone.sampler) is type(sampler) and type(sampler) in (SequentialSampler, RandomSampler)
    if sampler is not None and clone.sampler is not sampler and not makes_its_own:
        wrong.append("sampler")
    if wrong:
        raise _cannot_rebuild(loader, f"the new loader does not have the {', '.join(wrong)} asked for")


def _cannot_rebuild(loader: DataLoader[Any], reason: str) -> MisconfigurationException:
    kind = type(loader).__name__
    return MisconfigurationException(
        f"{kind} cannot be made again with a batch for all cores: expected to call {kind}(...) with a larger batch, "
        f"but {reason}. Store every constructor argument as an attribute of the same name (`self.name = name`) and "
        "pass `**kwargs` on to DataLoader, or build the batch for all cores yourself and pass "
        "`Trainer(use_distributed_sampler=False)`."
    )
