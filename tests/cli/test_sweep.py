"""Values of `--sweep`."""

from __future__ import annotations

import pytest

from systolic.cli._sweep import Sweep, parse_sweep
from systolic.exceptions import MisconfigurationException


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], Sweep()),
        (["batch_size=8..64"], Sweep(batch_sizes=(8, 16, 32, 64))),
        (["batch_size=8..100"], Sweep(batch_sizes=(8, 16, 32, 64, 100))),
        (["batch_size=7..7"], Sweep(batch_sizes=(7,))),
        (["batch_size=8,24"], Sweep(batch_sizes=(8, 24))),
        (["slice=v4-8,2x v5litepod-4", "batch_size=3"], Sweep(("v4-8", "2x v5litepod-4"), (3,))),
    ],
)
def test_what_is_compared(words: list[str], expected: Sweep) -> None:
    assert parse_sweep(words) == expected


@pytest.mark.parametrize(
    "words", [["batch_size=64..8"], ["batch_size=0..8"], ["batch_size="], ["lr=1"], ["slice="], ["slice=v4-8", "slice=v2-8"]]
)
def test_mistakes_say_what_was_expected(words: list[str]) -> None:
    with pytest.raises(MisconfigurationException, match=r"Expected batch_size=8..512 \(doubling\).*Received: '"):
        parse_sweep(words)
