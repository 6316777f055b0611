"""Messages, warnings and functions of the first process only; Lightning's names."""

from __future__ import annotations

import functools
import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_log = logging.getLogger("systolic")


class _WhereNobodyElseShows(logging.StreamHandler[Any]):
    """Shows messages on stderr, unless the script has set up logging: then it decides."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show a message."""
        if not logging.getLogger().handlers:
            self.stream = sys.stderr  # the one of now, which notebooks and tests replace
            super().emit(record)


# as in Lightning messages for information are seen; who wants none sets the logger's level higher
_log.setLevel(logging.INFO)
_log.addHandler(_WhereNobodyElseShows())


class LightningDeprecationWarning(DeprecationWarning):
    """Something that will go away."""


class WarningCache(set[str]):
    """The messages that were given already."""

    def warn(self, message: str, stacklevel: int = 5, **kwargs: Any) -> None:
        """Warn once."""
        if message not in self:
            self.add(message)
            rank_zero_warn(message, stacklevel=stacklevel, **kwargs)

    def info(self, message: str, stacklevel: int = 5, **kwargs: Any) -> None:
        """Log once."""
        if message not in self:
            self.add(message)
            rank_zero_info(message, stacklevel=stacklevel, **kwargs)

    def deprecation(self, message: str, stacklevel: int = 6, **kwargs: Any) -> None:
        """Warn once of something that will go away."""
        if message not in self:
            self.add(message)
            rank_zero_deprecation(message, stacklevel=stacklevel, **kwargs)


class FirstOnly:
    """A decorator of functions that do something in the first process only.

    Attributes:
        rank: the number of this process; a Trainer that starts sets it.
    """

    rank = int(os.environ.get("SYSTOLIC_PROCESS", "0"))

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R | None]:
        """A function that does nothing, and returns None, in all processes but the first.

        Example:
            >>> @rank_zero_only
            ... def square(x):
            ...     return x * x
            >>> square(3)
            9
        """

        @functools.wraps(fn)
        def first_only(*args: P.args, **kwargs: P.kwargs) -> R | None:
            return self.call(fn, args, kwargs)

        return first_only

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, or give None where it is not called."""
        return fn(*args, **kwargs) if self.rank == 0 else None


rank_zero_only = FirstOnly()


@rank_zero_only
def rank_zero_warn(message: str | Warning, stacklevel: int = 4, category: type[Warning] = UserWarning, **kwargs: Any) -> None:
    """Warn, in the first process."""
    warnings.warn(message, category, stacklevel=stacklevel, **kwargs)


@rank_zero_only
def rank_zero_info(*args: Any, stacklevel: int = 4, **kwargs: Any) -> None:
    """Log for information, in the first process."""
    _log.info(*args, stacklevel=stacklevel, **kwargs)


@rank_zero_only
def rank_zero_debug(*args: Any, stacklevel: int = 4, **kwargs: Any) -> None:
    """Log for debugging, in the first process."""
    _log.debug(*args, stacklevel=stacklevel, **kwargs)


def rank_zero_deprecation(message: str | Warning, stacklevel: int = 5, **kwargs: Any) -> None:
    """Warn of something that will go away, in the first process."""
    rank_zero_warn(message, stacklevel=stacklevel, category=LightningDeprecationWarning, **kwargs)


def rank_prefixed_message(message: str, rank: int | None) -> str:
    """A message that says which process gives it.

    Example:
        >>> rank_prefixed_message("ready", 1)
        '[rank: 1] ready'
    """
    return message if rank is None else f"[rank: {rank}] {message}"
