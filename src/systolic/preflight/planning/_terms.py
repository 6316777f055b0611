"""Terms of a run: how long it is, when it has to be done, what it may cost, and what chips cost."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...exceptions import MisconfigurationException
from ...hardware import CHIPS
from .._slices import Slice

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[dhms])+")


@dataclass(frozen=True)
class RunLength:
    """Length of a run.

    Attributes:
        epochs: how many, or None for no limit.
        steps: how many updates at most, or None for no limit.
        samples: of an epoch, or None where the loader does not say.
        batches: of an epoch at most, whatever their size (an integer `limit_train_batches`), or None.
        source: where these come from.
    """

    epochs: int | None
    steps: int | None
    samples: int | None
    batches: int | None = None
    source: str = ""

    def updates(self, global_batch: int, accumulation: int) -> int:
        """Updates of the parameters in the whole run.

        Args:
            global_batch: samples of an update.
            accumulation: batches of an update.

        Raises:
            MisconfigurationException: nothing says when the run ends.

        Example:
            >>> RunLength(epochs=3, steps=None, samples=1000).updates(512, 4)
            6
        """
        limits = [] if self.steps is None else [self.steps]
        if self.epochs is not None and self.samples is not None:
            whole = math.ceil(self.samples / global_batch)
            limited = whole if self.batches is None else min(whole, math.ceil(self.batches / accumulation))
            limits.append(self.epochs * limited)
        if not limits:
            raise MisconfigurationException(
                "How long the run is cannot be told: the Trainer sets no max_steps, and either max_epochs is -1 or the loader "
                "does not say how many samples it has. Give --steps N (updates of the parameters)."
            )
        return max(1, min(limits))


@dataclass(frozen=True)
class Terms:
    """Terms that choose between ways to run.

    Attributes:
        length: of the run.
        global_batch: samples of an update.
        deadline: seconds that the run may take, or None.
        budget: USD that it may cost, or None.
        prices: USD per chip and hour that replace those of the table, by generation ("v5e"); "" is for all generations.
    """

    length: RunLength
    global_batch: int
    deadline: float | None = None
    budget: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)

    def price(self, slice: Slice) -> float | None:
        """USD for a slice and an hour, or None where it is not known."""
        chip = self.prices.get(slice.chip.name, self.prices.get("", slice.chip.price))
        return None if chip is None else chip * slice.chips

    def price_source(self, slice: Slice) -> str:
        """Origin of a slice's price."""
        given = slice.chip.name in self.prices or "" in self.prices
        return "--price" if given else slice.chip.price_source or "no reliable price was found"


def parse_duration(text: str) -> float:
    """Seconds in a duration such as `24h`, `90m` or `1d12h`.

    Raises:
        MisconfigurationException: something else.

    Example:
        >>> parse_duration("1h30m")
        5400.0
    """
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([dhms])", text))
    if not _DURATION.fullmatch(text) or not seconds:
        raise MisconfigurationException(
            f"Invalid value for --deadline. Expected a duration with units, such as 24h, 90m or 1d12h. Received: {text!r}."
        )
    return seconds


def parse_prices(text: str) -> dict[str, float]:
    """USD per chip and hour: one number for all generations, or `v5litepod=0.60,v6e=1.35`.

    Raises:
        MisconfigurationException: something else.

    Example:
        >>> parse_prices("v5litepod=0.60"), parse_prices("2")
        ({'v5e': 0.6}, {'': 2.0})
    """
    names = {name: chip.name for chip in CHIPS.values() for name in (chip.name, chip.cloud_name)}
    found: dict[str, float] = {}
    for word in text.split(","):
        name, equals, price = word.rpartition("=")
        if not re.fullmatch(r"\d+(\.\d+)?", price) or not float(price) or (name not in names if equals else "," in text):
            raise MisconfigurationException(
                "Invalid value for --price. Expected USD per chip and hour, one number or a generation with each, such as "
                f"v5litepod=0.60,v6e=1.35. Received: {text!r}. Generations: {', '.join(sorted(names))}."
            )
        found[names[name] if equals else ""] = float(price)
    return found
