"""The record of a run: bounded, exact in its sums, and no second counted twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systolic import MisconfigurationException
from systolic.diagnostics import RUN_FILE, RunRecord, read_metrics, read_runs, write_runs
from systolic.diagnostics._points import Spread, StepPoints, ValuePoints


def test_percentiles_are_those_of_numpy_to_five_percent() -> None:
    durations = np.random.default_rng(0).lognormal(-6, 2, 50_000)
    spread = Spread()
    for part in np.array_split(durations, 13):
        spread.add(part.tolist())
    for percent in (5, 50, 95, 99):
        assert spread.percentile(percent) == pytest.approx(np.percentile(durations, percent), rel=0.03)


def test_steps_of_any_number_take_a_bounded_number_of_points_and_lose_nothing() -> None:
    generator = np.random.default_rng(1)
    points, durations, waits = StepPoints(), [], []
    for _ in range(700):
        seconds = generator.uniform(0.001, 0.002, generator.integers(1, 90)).tolist()
        points.add(seconds, [0.25 * one for one in seconds])
        durations += seconds
        waits += [0.25 * one for one in seconds]
    found = points.as_dict()
    counts, sums, longest, waited = np.array(found["points"]).T
    assert 200 <= len(counts) <= 400
    assert counts.sum() == found["count"] == len(durations)
    assert sums.sum() == pytest.approx(sum(durations))
    assert waited.sum() == pytest.approx(sum(waits)) == pytest.approx(found["waited"])
    ends = np.cumsum(counts).astype(int)
    assert longest[3] == max(durations[ends[2] : ends[3]])
    assert set(counts[:-1]) == {counts[0]}


def test_merged_values_keep_extremes_and_mean() -> None:
    values = np.random.default_rng(2).normal(size=5000)
    points = ValuePoints()
    for step, value in enumerate(values):
        points.add(step, value)
        if step % 1000 == 7:
            points.add(step, float("nan"))
    found = points.as_dict()
    at, means, low, high = np.array(found["points"]).T
    assert 200 <= len(at) <= 400
    assert (low.min(), high.max()) == (values.min(), values.max())
    begin, end = int(at[4]) + 1, int(at[5]) + 1
    assert means[5] == pytest.approx(values[begin:end].mean())
    assert (found["not_finite"], found["first_not_finite"]) == (5, 7)


def slow(count: int, seconds: float) -> Iterator[int]:
    for index in range(count):
        time.sleep(seconds)
        yield index


def test_no_second_is_counted_twice() -> None:
    record = RunRecord()
    for _ in record.watched("training", slow(5, 0.02), []):
        time.sleep(0.03)
        with record.within("evaluation"):
            time.sleep(0.01)
            for _ in record.watched("validation", slow(3, 0.01), []):
                time.sleep(0.005)
            with record.within("saving"):
                time.sleep(0.01)
    found = record.as_dict()
    spent, steps = found["spent"], found["steps"]
    assert spent["waiting for data"] == pytest.approx(5 * 0.02 + 15 * 0.01, rel=0.25)
    assert spent["training steps"] == pytest.approx(5 * 0.03, rel=0.25)
    assert spent["validation steps"] == pytest.approx(15 * 0.005, rel=0.4)
    assert spent["saving"] == pytest.approx(5 * 0.01, rel=0.4)
    assert spent["evaluation"] == pytest.approx(5 * 0.01, rel=0.4)
    assert sum(spent.values()) == pytest.approx(found["seconds"], rel=0.02)
    assert (steps["training"]["count"], steps["validation"]["count"]) == (5, 15)
    assert steps["training"]["percentiles"]["50"] == pytest.approx(0.05, rel=0.25)


def test_a_batch_after_which_the_loop_stops_counts() -> None:
    record = RunRecord()
    batches = record.watched("training", slow(100, 0.0), [])
    for index in batches:
        if index == 6:
            break
    batches.close()  # type: ignore[attr-defined]
    assert record.as_dict()["steps"]["training"]["count"] == 7


def test_what_is_written_is_read_again_and_bounded(tmp_path: Path) -> None:
    runs: list[dict[str, Any]] = [{"number": number} for number in range(30)]
    write_runs(tmp_path, runs)
    assert read_runs(tmp_path) == runs[-20:]
    assert [path.name for path in tmp_path.iterdir()] == [RUN_FILE]


def test_metrics_of_a_killed_run(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("epoch,loss,note,step\n0,0.5,a,0\n0,,b,1\n0,nan,,2\n1,0.25,,3\n1,0.2")
    found = read_metrics(tmp_path)
    assert found is not None
    assert found["loss"]["points"] == [[0.0, 0.5, 0.5, 0.5], [3.0, 0.25, 0.25, 0.25]]
    assert (found["loss"]["not_finite"], found["loss"]["first_not_finite"]) == (1, 2.0)
    assert list(found) == ["loss"]


def test_directories_that_tell_of_no_run(tmp_path: Path) -> None:
    with pytest.raises(MisconfigurationException, match=r"nowhere does not exist. Expected: the directory of a run"):
        read_runs(tmp_path / "nowhere")
    (tmp_path / "events.out").write_text("")
    with pytest.raises(MisconfigurationException, match=r"(?s)has no systolic-run.json.*Found there: events.out.*run again"):
        read_runs(tmp_path)
    (tmp_path / "version_3").mkdir()
    write_runs(tmp_path / "version_3", [])
    with pytest.raises(MisconfigurationException, match=r"not the directory of one run.*those below it that have: .*version_3"):
        read_runs(tmp_path)
    (tmp_path / "version_3" / RUN_FILE).write_text("{}")
    with pytest.raises(MisconfigurationException, match=r"no file of a run: KeyError.*Remove the file"):
        read_runs(tmp_path / "version_3")
    (tmp_path / "version_3" / RUN_FILE).write_text(json.dumps({"format": 7, "runs": []}))
    with pytest.raises(MisconfigurationException, match=r"has format 7, and this systolic reads format 1"):
        read_runs(tmp_path / "version_3")
