"""A clock that a compiled step reads would stand still without a word."""

from __future__ import annotations

import datetime as calendar_module
import threading
import time
import warnings
from datetime import datetime
from time import monotonic as clock_of_mine

import pytest
import torch

import systolic


def test_a_clock_in_a_step_is_told_once_with_its_line() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter()
        y = x.sin()
        return y * 0 + (time.perf_counter() - began)

    compiled = systolic.jit(step)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for size in (2, 2, 3):
            compiled(torch.ones(size))
    texts = [str(warning.message) for warning in said]
    first = step.__code__.co_firstlineno
    assert [text.partition(": time")[0] for text in texts] == [f"{__file__}:{first + line}" for line in (1, 3)], texts
    assert all('Trainer(profiler="xla")' in text for text in texts)
    assert [warning.filename for warning in said] == [__file__] * 2


def test_clocks_outside_of_steps_and_of_packages_are_not() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        torch.utils.data.get_worker_info()
        return x.cos()

    original = time.time
    before = time.time()
    systolic.jit(step)(torch.ones(2))
    assert time.time() >= before
    assert time.time is original


def seconds() -> float:
    return clock_of_mine()


READERS = {
    "time by a name of its own": seconds,
    "datetime by its name": lambda: datetime.now().timestamp(),
    "with a zone": lambda: datetime.now(tz=calendar_module.UTC).timestamp(),
    "the module": lambda: calendar_module.datetime.today().timestamp(),
    "a day": lambda: float(calendar_module.date.today().toordinal()),
}


@pytest.mark.parametrize("name", READERS)
def test_clocks_by_other_names_are_told_once_and_compiled_once(name: str) -> None:
    read = READERS[name]

    def step(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 0 + read()

    compiled = systolic.jit(step)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first, second = compiled(torch.ones(2)), compiled(torch.ones(2))
    assert torch.equal(first, second)
    assert [warning.filename for warning in said] == [__file__]
    assert str(said[0].message).startswith(f"{__file__}:{said[0].lineno}: ")
    assert clock_of_mine is time.monotonic
    assert datetime is calendar_module.datetime


def test_dates_of_a_step_that_are_no_clock_stay_what_they_are() -> None:
    moments = []

    def step(x: torch.Tensor) -> torch.Tensor:
        moments.append(datetime(2026, 11, 24, 12, 30))
        moments.append(datetime.strptime("2026-11-24", "%Y-%m-%d"))
        moments.append(datetime.fromtimestamp(0, tz=calendar_module.UTC))
        moments.append(calendar_module.date.fromisoformat("2026-11-24"))
        assert isinstance(moments[0], datetime)
        assert isinstance(moments[0], calendar_module.date)
        assert issubclass(datetime, calendar_module.date)
        assert not isinstance(moments[3], datetime)
        return x * moments[0].hour

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert systolic.jit(step)(torch.ones(1)) == 12
    assert [type(moment) for moment in moments[:4]] == [datetime, datetime, datetime, calendar_module.date]
    assert moments[1] == datetime(2026, 11, 24)


def test_other_threads_read_their_clocks_unheard_while_a_step_is_captured() -> None:
    read = []

    def step(x: torch.Tensor) -> torch.Tensor:
        other = threading.Thread(target=lambda: read.extend((clock_of_mine(), datetime.now(), time.time())))
        other.start()
        other.join()
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        systolic.jit(step)(torch.ones(1))
    assert [type(value) for value in read[:3]] == [float, datetime, float]
