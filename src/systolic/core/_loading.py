"""`load_from_checkpoint`: build a module or a data module as it was built for training."""

from __future__ import annotations

import csv
import importlib
import inspect
import warnings
from ast import literal_eval
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import fsspec

from ..checkpoint._location import MapLocation, PathLike
from ..exceptions import MisconfigurationException
from ._hparams import AttributeDict, is_omegaconf
from ._instantiation import instantiate_module, is_instantiated

OMEGACONF = "omegaconf"
"""What a checkpoint of systolic says of the type of its hyperparameters; Lightning's hold the class itself."""

_OWN = "systolic_"
"""Beginning of the entry that says so: under Lightning's name Lightning would call what it finds there."""


class Checkpointed:
    """A class that can be built from a checkpoint.

    Attributes:
        CHECKPOINT_HYPER_PARAMS_KEY: where the checkpoint holds the hyperparameters.
        CHECKPOINT_HYPER_PARAMS_NAME: where it holds the argument that takes all of them, or "kwargs".
        CHECKPOINT_HYPER_PARAMS_TYPE: where it says of which type they are, if that is not a plain dict.
    """

    CHECKPOINT_HYPER_PARAMS_KEY: str
    CHECKPOINT_HYPER_PARAMS_NAME: str
    CHECKPOINT_HYPER_PARAMS_TYPE: str


class _WithHyperparameters(Protocol):
    """A module or a data module: what `Checkpointed` and the mixin of hyperparameters give it."""

    @property
    def CHECKPOINT_HYPER_PARAMS_KEY(self) -> str: ...

    @property
    def CHECKPOINT_HYPER_PARAMS_NAME(self) -> str: ...

    @property
    def CHECKPOINT_HYPER_PARAMS_TYPE(self) -> str: ...

    @property
    def hparams(self) -> Any: ...


def hyperparameters_of(owner: _WithHyperparameters) -> dict[str, Any]:
    """Entries of a checkpoint for an object's hyperparameters; none when it has none."""
    if not owner.hparams:
        return {}
    found = {owner.CHECKPOINT_HYPER_PARAMS_NAME: getattr(owner, "_hparams_name", None)}
    if not is_omegaconf(owner.hparams):
        return {**found, owner.CHECKPOINT_HYPER_PARAMS_KEY: dict(owner.hparams)}
    plain = importlib.import_module(OMEGACONF).OmegaConf.to_container(owner.hparams, resolve=False)
    return {**found, owner.CHECKPOINT_HYPER_PARAMS_KEY: plain, _OWN + owner.CHECKPOINT_HYPER_PARAMS_TYPE: OMEGACONF}


def read(path: PathLike, map_location: MapLocation, weights_only: bool | None) -> dict[str, Any]:
    """The checkpoint in a file; None for `weights_only` refuses all but tensors and plain values, too, unless
    `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` says otherwise.
    """
    from ..checkpoint import load

    return load(path, map_location=map_location or "cpu", weights_only=weights_only)


def build(cls: type[Checkpointed], checkpoint: dict[str, Any], hparams_file: PathLike | None, given: dict[str, Any]) -> Any:
    """Make an instance with the hyperparameters of a checkpoint.

    Args:
        cls: the class.
        checkpoint: its hyperparameters are brought up to date with `hparams_file` and `given`.
        hparams_file: a .yaml or .csv file that replaces the hyperparameters of the checkpoint; None for none.
        given: arguments that come first.
    """
    if hparams_file is not None:
        checkpoint[cls.CHECKPOINT_HYPER_PARAMS_KEY] = _from_file(hparams_file)
    saved: Any = checkpoint.setdefault(cls.CHECKPOINT_HYPER_PARAMS_KEY, _of_old_lightning(checkpoint))
    saved.update(given)
    kind = cls.CHECKPOINT_HYPER_PARAMS_TYPE
    saved = _converted(saved, checkpoint.get(_OWN + kind, checkpoint.get(kind)))
    if is_instantiated(saved, cls):
        return instantiate_module(cls, saved)
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    named = {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    whole = checkpoint.get(cls.CHECKPOINT_HYPER_PARAMS_NAME)
    arguments = {**({whole: saved} if whole in named else saved), **given}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        arguments = {name: value for name, value in arguments.items() if name in named}
    return cls(**arguments)


def _of_old_lightning(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Hyperparameters under the names that Lightning before 0.8 gave them."""
    found: dict[str, Any] = {}
    for name in ("hparams", "module_arguments"):
        found |= checkpoint.get(name, {})
    return found


def _converted(saved: Mapping[str, Any], kind: Callable[[Any], Any] | str | None) -> Any:
    if kind is None:
        return saved
    if kind == OMEGACONF:
        return _omegaconf().create(saved)
    return AttributeDict(saved) if isinstance(kind, str) else kind(saved)


def _omegaconf() -> Any:
    try:
        return importlib.import_module(OMEGACONF).OmegaConf
    except ImportError as error:
        raise MisconfigurationException(
            "The hyperparameters of this checkpoint are an OmegaConf container, and omegaconf is not installed. "
            "Install it with `pip install omegaconf`."
        ) from error


def _from_file(path: PathLike) -> dict[str, Any]:
    kind = Path(path).suffix.lower()
    if kind not in (".csv", ".yaml", ".yml"):
        raise ValueError(f"`hparams_file` must be a .csv, .yaml or .yml file. Received: {str(path)!r}.")
    if not _exists(str(path)):
        warnings.warn(f"There is no file of hyperparameters {str(path)!r}: arguments keep their defaults.", stacklevel=4)
        return {}
    with fsspec.open(str(path), "r", newline="") as file:
        if kind == ".csv":
            return {name: _literal(text) for name, text in list(csv.reader(file))[1:]}
        return _yaml().full_load(file) or {}


def _exists(url: str) -> bool:
    files, path = fsspec.core.url_to_fs(url)
    return files.exists(path)


def _yaml() -> Any:
    try:
        return importlib.import_module("yaml")
    except ImportError as error:
        raise MisconfigurationException(
            "Reading a .yaml file of hyperparameters needs PyYAML: `pip install pyyaml`. Or pass the values by name to "
            "load_from_checkpoint."
        ) from error


def _literal(text: str) -> Any:
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):  # a word stays a word
        return text
