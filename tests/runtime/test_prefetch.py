"""The background thread that brings batches to the devices (F13)."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from systolic.runtime._prefetch import Prefetcher


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "systolic-prefetch"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not running()


class Source:
    """Counts what was taken from it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.taken += 1
            yield number


@pytest.mark.parametrize("depth", [1, 2, 10])
def test_order_is_kept(depth: int) -> None:
    def prepare(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        return number * number

    assert list(Prefetcher(range(20), prepare, depth)) == [n * n for n in range(20)]


def test_nothing_gives_nothing() -> None:
    assert list(Prefetcher([], lambda item: item)) == []


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_thread_runs_ahead_by_the_depth_and_no_further(depth: int) -> None:
    """`depth` items wait, and one more is in work."""
    source = Source(50)
    ahead = []
    for number in Prefetcher(source, lambda item: item, depth):
        time.sleep(0.01)
        ahead.append(source.taken - (number + 1))
    assert max(ahead) == depth + 1
    assert min(ahead[: -depth - 2]) >= 1


def test_an_error_arrives_in_its_place_with_the_users_traceback() -> None:
    def failing_dataset() -> Iterator[int]:
        yield from range(3)
        raise LookupError("sample 3 is broken")

    seen: list[int] = []
    with pytest.raises(LookupError, match="sample 3") as raised:
        seen.extend(Prefetcher(failing_dataset(), lambda item: item))
    assert seen == [0, 1, 2]
    assert "failing_dataset" in "".join(traceback.format_exception(raised.value))


def test_an_error_while_preparing_arrives_too() -> None:
    def prepare(item: int) -> float:
        return 1 / (2 - item)

    prefetched = iter(Prefetcher(range(5), prepare))
    assert [next(prefetched), next(prefetched)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(prefetched)
    with pytest.raises(StopIteration):
        next(prefetched)


@pytest.mark.parametrize("taken", [1, 5])
def test_stopping_early_ends_the_thread(taken: int) -> None:
    source = Source(10_000)
    for number in Prefetcher(source, lambda item: item, 3):
        if number + 1 == taken:
            break
    assert not running()
    assert source.taken <= taken + 5


def test_an_exception_in_the_loop_ends_the_thread() -> None:
    def loop() -> None:
        for _ in Prefetcher(Source(100), lambda item: item):
            raise RuntimeError("in the loop")

    with pytest.raises(RuntimeError, match="in the loop"):
        loop()


def test_closing_without_starting_does_nothing() -> None:
    iter(Prefetcher(range(3), lambda item: item))
    Prefetcher(range(3), lambda item: item).close()


def test_a_generator_as_source_is_closed_when_the_loop_stops() -> None:
    """Workers and files behind a generator are let go."""
    closed: list[bool] = []

    def source() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            closed.append(True)

    prefetched: Any = iter(Prefetcher(source(), lambda item: item))
    assert next(prefetched) == 0
    prefetched.close()
    assert closed == [True]
