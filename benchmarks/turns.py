"""Several training loops timed in turn, so that what else the machine does meets all of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Protocol


class Epochs(Protocol):
    """A training loop that runs an epoch when it is told to, and says how long that took."""

    def epoch(self) -> float: ...


def medians_in_turn(contenders: Mapping[str, Epochs], rounds: int, warm_ups: int = 1) -> dict[str, float]:
    """The median of each one's epochs over rounds, in each of which all of them take their turn.

    Args:
        contenders: by name.
        rounds: how many count.
        warm_ups: epochs before these, in which programs are compiled.
    """
    for contender in contenders.values():
        for _ in range(warm_ups):
            contender.epoch()
    times: dict[str, list[float]] = {who: [] for who in contenders}
    for _ in range(rounds):
        for who, contender in contenders.items():
            times[who].append(contender.epoch())
    return {who: statistics.median(found) for who, found in times.items()}
