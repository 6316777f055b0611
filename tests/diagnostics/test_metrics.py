"""The metrics store, and the layout of its report."""

from __future__ import annotations

import re
import threading

import pytest

from systolic.diagnostics import Metrics
from systolic.diagnostics._units import duration, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "000.000us"),
        (0.0000012345, "001.234us"),
        (0.25, "250ms000.000us"),
        (1.7, "01s700ms000.000us"),
        (62.003004567, "01m02s003ms004.567us"),
        (3600.0, "01h00m00s000ms000.000us"),
        (90061.5, "01d01h01m01s500ms000.000us"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6}
    back = sum(float(n) * units[u] for n, u in re.findall(r"([\d.]+)(us|ms|d|h|m|s)", duration(seconds)))
    assert back == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize(("count", "text"), [(0, "0.00B"), (1023, "1023.00B"), (1536, "1.50KB"), (3 * 1024**3, "3.00GB")])
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text


def test_report_has_the_layout_of_torch_xla() -> None:
    metrics = Metrics()
    for number in range(1, 101):
        metrics.add("ExecuteTime", number / 1000, at=number / 10)
    metrics.count("UncachedCompile", 2)
    assert metrics.metrics_report() == (
        "Metric: ExecuteTime\n"
        "  TotalSamples: 100\n"
        "  Accumulator: 05s050ms000.000us\n"
        "  ValueRate: 510ms101.010us / second\n"
        "  Rate: 10.101 / second\n"
        "  Percentiles: 1%=002ms000.000us; 5%=006ms000.000us; 10%=011ms000.000us; 20%=021ms000.000us; "
        "50%=051ms000.000us; 80%=081ms000.000us; 90%=091ms000.000us; 95%=096ms000.000us; 99%=100ms000.000us\n"
        "Counter: UncachedCompile\n"
        "  Value: 2\n"
    )


def test_memory_is_bounded_but_totals_are_not() -> None:
    metrics = Metrics()
    for number in range(5000):
        metrics.add("ExecuteTime", 1.0, at=float(number))
    total, accumulated, samples = metrics.metric_data("ExecuteTime") or (0, 0.0, ())
    assert (total, accumulated, len(samples)) == (5000, 5000.0, 1024)


def test_unknown_names_and_clearing() -> None:
    metrics = Metrics()
    assert metrics.metric_data("x") is None
    assert metrics.counter_value("x") is None
    metrics.add("a", 1.0)
    metrics.count("b")
    assert (metrics.metric_names(), metrics.counter_names()) == (["a"], ["b"])
    metrics.clear_all()
    assert metrics.metrics_report() == ""


def test_one_sample_has_no_rate() -> None:
    metrics = Metrics()
    metrics.add("CompileTime", 0.5, at=1.0)
    assert "Rate" not in metrics.metrics_report()
    assert metrics.as_dict()["metrics"]["CompileTime"]["percentiles"]["99"] == 0.5


def test_threads_lose_nothing() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(500):
            metrics.add("t", 1.0)
            metrics.count("c")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.counter_value("c") == (metrics.metric_data("t") or (0,))[0] == 2000
