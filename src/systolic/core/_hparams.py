"""`save_hyperparameters`: remember what a module or a data module was built with."""

from __future__ import annotations

import copy
import pickle
import types
import warnings
from argparse import Namespace
from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from torch import nn

from ._arguments import calling_frame, init_arguments
from ._given import given_to

_PRIMITIVES = (bool, int, float, str)


class AttributeDict(dict[str, Any]):
    """A dict whose entries are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(map(str, self)) or "none"
            raise AttributeError(f"Missing hyperparameter '{name}'. There are: {known}.") from None

    def __setattr__(self, name: str, value: object) -> None:
        self[name] = value


Hyperparameters = AttributeDict | MutableMapping[str, Any]


class _Initial(MutableMapping[str, Any]):
    """The copy that was made when they were saved.

    No dict: the object graph of a step has no business in it. A mapping, because packages take entries out of it that
    they cannot write down (pytorch-forecasting, before its logger sees them).
    """

    def __init__(self, value: Hyperparameters) -> None:
        self.value = value

    def __getitem__(self, name: str) -> Any:
        return self.value[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.value[name] = value

    def __delitem__(self, name: str) -> None:
        del self.value[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.value)

    def __len__(self) -> int:
        return len(self.value)


class HyperparametersMixin:
    """Gives a class `save_hyperparameters` and `hparams`."""

    if TYPE_CHECKING:  # TorchScript reads the annotations of a module's classes, and knows none of these
        _hparams: Hyperparameters
        _hparams_initial: _Initial
        _hparams_name: str | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._log_hyperparams = False
        # here, not when it is first read: a new attribute would be a new trace of the step
        vars(self).setdefault("_hparams", AttributeDict())

    def save_hyperparameters(
        self,
        *args: Any,
        ignore: str | Iterable[str] | None = None,
        frame: types.FrameType | None = None,
        logger: bool = True,
    ) -> None:
        """Remember arguments of `__init__` as `self.hparams`; they go to the loggers and into checkpoints.

        Args:
            *args: names of arguments, or one dict, namespace or OmegaConf container of values; default: all arguments.
            ignore: a name or names to leave out, those included that a base class has saved.
            frame: the frame of `__init__`; default: the caller's.
            logger: whether the loggers get them.

        Raises:
            ValueError: the value given is no container of named values, or a name is no argument of `__init__`.
        """
        self._log_hyperparams = logger
        if len(args) == 1 and _is_empty(args[0]):
            return
        skipped = {ignore} if isinstance(ignore, str) else {name for name in ignore or () if isinstance(name, str)}
        given = given_to(self)
        found = init_arguments(self, frame or calling_frame(), HyperparametersMixin) if given is None else given
        values = {name: value for name, value in found.items() if name not in skipped}
        chosen, self._hparams_name = _chosen(args, values)
        self._keep(_as_container(chosen))
        self.remove_ignored_hparams(skipped)
        self._warn_of_modules()
        self._hparams_initial = _Initial(copy.deepcopy(self._hparams))

    def remove_ignored_hparams(self, ignore_list: Iterable[str]) -> None:
        """Forget hyperparameters that a base class has saved.

        Args:
            ignore_list: their names.
        """
        for name in ignore_list:
            self._hparams.pop(name, None)

    def _keep(self, values: Hyperparameters) -> None:
        if isinstance(values, dict) and isinstance(self.hparams, dict):
            self.hparams.update(values)
        else:  # a container of another kind (OmegaConf) stays what it is
            self._hparams = values

    def _warn_of_modules(self) -> None:
        names = [name for name, value in self._hparams.items() if isinstance(value, nn.Module)]
        if names:
            warnings.warn(
                f"Of the hyperparameters {names} of {type(self).__name__} each is an instance of `nn.Module` and is already "
                f"saved in checkpoints, in the state_dict. Leave them out with self.save_hyperparameters(ignore={names}), and "
                "give them to load_from_checkpoint by name.",
                stacklevel=3,
            )

    @property
    def hparams(self) -> Any:
        """The saved hyperparameters, as a dict whose entries are attributes; or the OmegaConf container that was saved."""
        # not by `vars`: a step that looks there reads every attribute, and is traced again when any of them changes
        found = getattr(self, "_hparams", None)
        if found is None:
            found = self._hparams = AttributeDict()
        return found

    @property
    def hparams_initial(self) -> Any:
        """A copy of the hyperparameters as they were when they were saved."""
        return copy.deepcopy(self._hparams_initial.value if "_hparams_initial" in vars(self) else AttributeDict())


def settle(owner: HyperparametersMixin) -> None:
    """Let an object whose hyperparameters Lightning's `save_hyperparameters` kept hold them as ours does."""
    vars(owner).setdefault("_hparams", AttributeDict())
    initial = vars(owner).get("_hparams_initial")
    if initial is not None and not isinstance(initial, _Initial):
        owner._hparams_initial = _Initial(initial)


def drop_what_cannot_be_pickled(owner: HyperparametersMixin) -> None:
    """Forget hyperparameters that no checkpoint could hold, with a warning, before a run that may save one."""
    for name, value in list(owner.hparams.items()):
        if not _can_be_pickled(value):
            warnings.warn(
                f"Attribute {name!r} removed from hparams because it cannot be pickled: it is a hyperparameter of "
                f"{type(owner).__name__}, and no checkpoint could hold it. Leave it out with "
                f"self.save_hyperparameters(ignore=[{name!r}]).",
                stacklevel=2,
            )
            del owner.hparams[name]


def _can_be_pickled(value: object) -> bool:
    try:
        pickle.dumps(value)
    except (pickle.PickleError, AttributeError, RuntimeError, TypeError):
        return False
    return True


def _is_empty(value: Any) -> bool:
    return value is None or (hasattr(value, "__len__") and not len(value))


def _chosen(args: tuple[Any, ...], values: dict[str, Any]) -> tuple[Any, str | None]:
    """Value to save, and the argument under whose name a checkpoint gives it back ("kwargs": each under its own)."""
    if not args:
        return values, "kwargs" if values else None
    containers = [argument for argument in args if not isinstance(argument, str)]
    if len(containers) == 1:
        names = [name for name, value in values.items() if value is containers[0] or _equal(value, containers[0])]
        return containers[0], names[0] if names else None
    unknown = [name for name in args if isinstance(name, str) and name not in values]
    if unknown:
        raise ValueError(
            f"save_hyperparameters({', '.join(map(repr, args))}): expected names of arguments of __init__ "
            f"({', '.join(values) or 'there are none'}). Received: {', '.join(map(repr, unknown))}."
        )
    return {name: values[name] for name in args if isinstance(name, str)}, "kwargs"


def _equal(value: object, other: object) -> bool:
    return isinstance(value, type(other)) and bool(value == other)


def _as_container(values: Any) -> Hyperparameters:
    if isinstance(values, Namespace):
        values = vars(values)
    if isinstance(values, dict):
        return AttributeDict(values)
    if isinstance(values, MutableMapping) or is_omegaconf(values):
        return values
    raise ValueError(
        f"save_hyperparameters(value): Primitives {_PRIMITIVES} are no hyperparameters. Expected a dict, a Namespace or an "
        f"OmegaConf container, or names of arguments. Received: {type(values).__name__}. Wrap it, as in "
        f"save_hyperparameters({{'name': value}})."
    )


def is_omegaconf(value: object) -> bool:
    """Whether a value is a container of OmegaConf, which need not be installed."""
    return type(value).__module__.partition(".")[0] == "omegaconf"
