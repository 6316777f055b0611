"""Meaning of `Trainer(profiler=...)`."""

from __future__ import annotations

from ..compat import welcome
from ..exceptions import MisconfigurationException
from ..utilities._suggest import suggest
from .advanced import AdvancedProfiler
from .profiler import PassThroughProfiler, Profiler
from .pytorch import PyTorchProfiler
from .simple import SimpleProfiler
from .xla import XLAProfiler

_BY_NAME: dict[str, type[Profiler]] = {
    "simple": SimpleProfiler,
    "advanced": AdvancedProfiler,
    "pytorch": PyTorchProfiler,
    "xla": XLAProfiler,
}


def make_profiler(profiler: object) -> Profiler | None:
    """The profiler for an argument; None when nothing is to be measured.

    Args:
        profiler: None, a name, or an instance.

    Raises:
        MisconfigurationException: it is none of these; lists the names.

    Example:
        >>> type(make_profiler("simple")).__name__
        'SimpleProfiler'
    """
    profiler = welcome(profiler, PassThroughProfiler, Profiler)
    if profiler is None or isinstance(profiler, PassThroughProfiler):
        return None
    if isinstance(profiler, Profiler):
        return profiler
    if isinstance(profiler, str) and profiler.lower() in _BY_NAME:
        return _BY_NAME[profiler.lower()]()
    if isinstance(profiler, str):
        raise MisconfigurationException(
            "When passing string value for the `profiler` parameter of `Trainer`, it can only be one of "
            f"{', '.join(map(repr, _BY_NAME))}. Received: {profiler!r}.{suggest(profiler, _BY_NAME)}"
        )
    raise MisconfigurationException(
        f"Invalid value for argument `profiler`. Expected None, one of {', '.join(map(repr, _BY_NAME))}, or a "
        f"systolic.profilers.Profiler. Received: {profiler!r}."
    )
