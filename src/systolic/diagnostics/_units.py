"""Durations and sizes in the spelling of torch_xla's metrics report."""

from __future__ import annotations

_PARTS = (("d", 86_400_000_000_000, 2), ("h", 3_600_000_000_000, 2), ("m", 60_000_000_000, 2), ("s", 1_000_000_000, 2))
_SIZES = ("B", "KB", "MB", "GB", "TB", "PB")


def duration(seconds: float) -> str:
    """A duration as `01m02s003ms004.567us`; the larger parts only where they are not zero.

    Example:
        >>> duration(62.003004567)
        '01m02s003ms004.567us'
    """
    left = max(0, round(seconds * 1e9))
    text = ""
    for suffix, scale, width in (*_PARTS, ("ms", 1_000_000, 3)):
        count, rest = divmod(left, scale)
        if count or text:
            text += f"{count:0{width}d}{suffix}"
            left = rest
    return f"{text}{left / 1000:07.3f}us"


def size(count: float) -> str:
    """A number of bytes with a binary unit, two decimals.

    Example:
        >>> size(1536)
        '1.50KB'
    """
    unit = 0
    while count >= 1024 and unit + 1 < len(_SIZES):
        count, unit = count / 1024, unit + 1
    return f"{count:.2f}{_SIZES[unit]}"


def spoken(seconds: float) -> str:
    """A duration for people, from microseconds to days.

    Example:
        >>> spoken(0.0123), spoken(75.2), spoken(7384.0)
        ('12.3 ms', '75.2 s', '2 h 03 min')
    """
    if seconds < 120:
        for scale, unit in ((1.0, "s"), (1e-3, "ms")):
            if seconds >= scale:
                return f"{seconds / scale:.3g} {unit}"
        return f"{seconds / 1e-6:.3g} us"
    minutes = round(seconds / 60)
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24:02d} h"
