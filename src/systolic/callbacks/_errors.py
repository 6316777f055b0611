"""Errors of the callbacks."""

from collections.abc import Iterable

from ..exceptions import MisconfigurationException
from ..utilities._suggest import suggest


class MissingMetricError(MisconfigurationException, RuntimeError):
    """A callback waits for a metric that nobody logs; a `RuntimeError` too, as Lightning's EarlyStopping raises."""


def missing_metric(asked_by: str, monitor: str, available: Iterable[str]) -> MissingMetricError:
    """Name the metric, the ones there are, and what to do."""
    names = sorted(available)
    listing = f"Logged so far: {', '.join(map(repr, names))}." if names else "Nothing was logged so far."
    return MissingMetricError(
        f"{asked_by}(monitor={monitor!r}): no such metric.{suggest(monitor, names)} {listing} "
        f"Call self.log({monitor!r}, value) in the module{', or monitor one of these' if names else ''}."
    )


def require_mode(asked_by: str, mode: str) -> None:
    """Refuse a mode other than `min` and `max`."""
    if mode not in ("min", "max"):
        raise MisconfigurationException(
            f"{asked_by}(mode={mode!r}): `mode` can be 'min' or 'max', but got {mode}.{suggest(mode, ('min', 'max'))}"
        )
