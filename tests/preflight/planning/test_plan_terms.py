"""Terms of a plan: durations, prices, and how many updates a run has."""

from __future__ import annotations

import pytest

from systolic.exceptions import MisconfigurationException
from systolic.preflight import RunLength, parse_duration, parse_prices, parse_slice
from systolic.preflight.planning._outcome import BatchTime, Outcome, Prediction
from systolic.preflight.planning._space import Cell
from systolic.preflight.planning._terms import Terms


@pytest.mark.parametrize(
    ("text", "seconds"), [("24h", 86400), ("90m", 5400), ("1d12h", 129600), ("30s", 30), ("1.5h", 5400), ("1h30m", 5400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["24", "h", "24 h", "1y", "-3h", "0h", "24hours", "tomorrow"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(MisconfigurationException, match="Invalid value for --deadline. Expected a duration.*Received: '"):
        parse_duration(text)


def test_prices() -> None:
    assert parse_prices("v5litepod=0.60,v6e=1.35") == {"v5e": 0.6, "v6e": 1.35}
    assert parse_prices("2") == {"": 2.0}
    for text in ("", "v9=1", "v6e=", "v6e=-1", "v6e=0", "1,2", "cheap"):
        with pytest.raises(MisconfigurationException, match="Invalid value for --price"):
            parse_prices(text)


def test_given_prices_replace_those_of_the_table() -> None:
    length = RunLength(None, 1, None)
    table, own = Terms(length, 8), Terms(length, 8, prices={"v5e": 0.5})
    v5e, v6e, v3 = map(parse_slice, ("v5litepod-8", "v6e-4", "v3-8"))
    assert (table.price(v5e), table.price(v6e), table.price(v3)) == (v5e.price, v6e.price, None)
    assert (own.price(v5e), own.price(v6e)) == (4.0, v6e.price)
    assert Terms(length, 8, prices={"": 1.0}).price(v3) == 4
    assert "--price" in own.price_source(v5e)


@pytest.mark.parametrize(
    ("length", "accumulation", "updates"),
    [
        (RunLength(3, None, 1000), 1, 6),  # an epoch is a whole and a part of a global batch of 512
        (RunLength(3, 4, 1000), 1, 4),
        (RunLength(None, 100, None), 4, 100),
        (RunLength(2, None, 100_000, batches=10), 1, 20),
        (RunLength(2, None, 100_000, batches=10), 4, 6),  # 4, 4 and 2 batches
        (RunLength(1, None, 3), 1, 1),
    ],
)
def test_updates_of_a_run(length: RunLength, accumulation: int, updates: int) -> None:
    assert length.updates(512, accumulation) == updates


@pytest.mark.parametrize("length", [RunLength(None, None, 100), RunLength(5, None, None)])
def test_a_run_without_an_end_asks_for_steps(length: RunLength) -> None:
    with pytest.raises(MisconfigurationException, match="Give --steps N"):
        length.updates(8, 1)


def test_what_a_run_takes_and_costs() -> None:
    slice = parse_slice("v5litepod-16")  # four chips on each of four hosts, 1.20 USD each
    cell = Cell(slice, "fsdp", "full", 4, 3)
    found = Prediction(BatchTime(0.2, 0.05), BatchTime(0.4, 0.1), 2**30, 4 * 2**30, flops=197e11, compiled=True)
    one = Outcome(cell, found, Terms(RunLength(None, 3600, None), 192))
    assert one.step == pytest.approx(2 * 0.25 + 0.5)
    assert one.seconds == pytest.approx(3600)
    assert one.cost == pytest.approx(16 * 1.2)
    assert one.utilization == pytest.approx(3 * 0.1)
    assert one.percent == 25
    assert one.arguments() == {
        "accelerator": "tpu", "devices": 4, "strategy": "fsdp", "remat": "full", "accumulate_grad_batches": 3,
    }  # fmt: skip
