"""Measuring time, and stopping when it is up."""

import time
from datetime import timedelta
from typing import Any

import pytest
from callbacks.fake_trainer import FakeTrainer

from systolic.callbacks import Timer
from systolic.exceptions import MisconfigurationException


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until a test moves it."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        ("01:02:03:04", 93784.0),
        (timedelta(minutes=2), 120.0),
        ({"hours": 1, "seconds": 1}, 3601.0),
        (None, None),
    ],
)
def test_durations(duration: Any, seconds: float | None) -> None:
    assert Timer(duration).time_remaining() == seconds


@pytest.mark.parametrize("duration", ["6:00:00:00:00", "01:00", "1:2:3:4", "soon"])
def test_durations_that_are_none(duration: str) -> None:
    with pytest.raises(MisconfigurationException, match="in the format DD:HH:MM:SS"):
        Timer(duration)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(MisconfigurationException, match="'step' or 'epoch'"):
        Timer(interval="batch")
    with pytest.raises(MisconfigurationException, match="unknown stage 'fit'"):
        Timer().time_elapsed("fit")


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_training_stops_when_the_time_is_up(interval: str, now: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    timer = Timer(timedelta(seconds=5), interval=interval)
    trainer = FakeTrainer(callbacks=[timer])
    trainer.start()
    trainer.call("on_step_dispatched", 0)
    assert not trainer.should_stop
    now[0] += 6
    trainer.call("on_step_dispatched", 1)
    assert trainer.should_stop == (interval == "step")
    trainer.call("on_train_epoch_end")
    assert trainer.should_stop
    assert capsys.readouterr().out.startswith("Time limit reached after 0:00:06. Stopping.\n")


def test_time_before_a_resume_counts(now: list[float]) -> None:
    timer = Timer(timedelta(seconds=10), verbose=False)
    timer.load_state_dict({"time_elapsed": {"train": 9.0}})
    trainer = FakeTrainer(callbacks=[timer])
    trainer.start()
    assert not trainer.should_stop
    now[0] += 1.5
    trainer.call("on_step_dispatched", 0)
    assert trainer.should_stop
    used_up = Timer("00:00:00:05", verbose=False)
    used_up.load_state_dict({"time_elapsed": {"train": 6.0}})
    trainer = FakeTrainer(callbacks=[used_up])
    trainer.call("on_fit_start")
    assert trainer.should_stop


def test_stages_are_measured_apart() -> None:
    timer = Timer()
    trainer = FakeTrainer(callbacks=[timer])
    assert timer.time_elapsed() == 0
    trainer.train()
    for hook in ("on_test_start", "on_test_end"):
        trainer.call(hook)
    for stage in ("train", "validate", "test"):
        start, end = timer.start_time(stage), timer.end_time(stage)
        assert start is not None
        assert end is not None
        assert timer.time_elapsed(stage) == end - start
    assert timer.time_elapsed("validate") <= timer.time_elapsed("train")
    assert timer.state_dict()["time_elapsed"]["train"] == timer.time_elapsed("train")


def test_the_clock_does_not_go_back_with_training(now: list[float]) -> None:
    """A checkpoint that is loaded while training runs, as SpikeDetection(action="rewind") does."""
    timer = Timer(timedelta(seconds=100), verbose=False)
    trainer = FakeTrainer(callbacks=[timer])
    trainer.start()
    now[0] += 5
    saved = timer.state_dict()
    now[0] += 5
    timer.load_state_dict(saved)
    assert timer.time_elapsed() == 10.0
    trainer.call("teardown", "fit")
    now[0] += 5
    assert timer.time_elapsed() == 10.0
