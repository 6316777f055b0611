"""`save_hyperparameters`: remember what a module was built with."""

from __future__ import annotations

import copy
import inspect
import types
from argparse import Namespace
from collections.abc import MutableMapping
from typing import Any


class AttributeDict(dict[str, Any]):
    """A dict whose entries are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"Missing hyperparameter '{name}'. There are: {', '.join(self) or 'none'}.") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class HyperparametersMixin:
    """Gives a class `save_hyperparameters` and `hparams`."""

    _hparams: AttributeDict
    _hparams_initial: AttributeDict

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._log_hyperparams = False
        # here, not when it is first read: a new attribute would be a new trace of the step
        vars(self).setdefault("_hparams", AttributeDict())

    def save_hyperparameters(
        self, *args: Any, ignore: Any = None, frame: types.FrameType | None = None, logger: bool = True
    ) -> None:
        """Remember arguments of `__init__` as `self.hparams`; they go to the loggers and into checkpoints.

        Args:
            *args: names of arguments, or one dict or namespace of values; default: all arguments.
            ignore: a name or names to leave out.
            frame: the frame of `__init__`; default: the caller's.
            logger: whether the loggers get them.
        """
        if len(args) == 1 and isinstance(args[0], (MutableMapping, Namespace)):
            values = dict(args[0]) if isinstance(args[0], MutableMapping) else dict(vars(args[0]))
        else:
            values = _init_arguments(self, frame or _caller())
            if args:
                values = {name: values[name] for name in args}
        skipped = {ignore} if isinstance(ignore, str) else set(ignore or ())
        kept = {name: value for name, value in values.items() if name not in skipped}
        self._log_hyperparams = logger
        self._hparams = AttributeDict({**getattr(self, "_hparams", {}), **kept})
        self._hparams_initial = copy.deepcopy(self._hparams)

    @property
    def hparams(self) -> AttributeDict:
        """The saved hyperparameters, as a dict whose entries are attributes."""
        if "_hparams" not in vars(self):
            self._hparams = AttributeDict()
        return self._hparams

    @property
    def hparams_initial(self) -> AttributeDict:
        """The hyperparameters as they were when they were saved."""
        return copy.deepcopy(self._hparams_initial if "_hparams_initial" in vars(self) else AttributeDict())


def _caller() -> types.FrameType:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    assert frame.f_back.f_back is not None
    return frame.f_back.f_back


def _init_arguments(owner: Any, frame: types.FrameType) -> dict[str, Any]:
    """The arguments of every `__init__` of `owner` on the stack, the outermost (most derived) last."""
    found: dict[str, Any] = {}
    current: types.FrameType | None = frame
    while current is not None and current.f_code.co_name == "__init__":
        information = inspect.getargvalues(current)
        if not information.args or information.locals.get(information.args[0]) is not owner:
            break
        values = {name: information.locals[name] for name in information.args[1:] if name in information.locals}
        code = current.f_code
        names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        values.update({name: information.locals[name] for name in names})
        if information.keywords:
            values.update(information.locals[information.keywords])
        found.update(values)
        current = current.f_back
    return found
