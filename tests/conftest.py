"""Every test runs with 8 simulated cores."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Generator
from pathlib import Path

# programs that tests compile are kept apart from the user's
if "SYSTOLIC_CACHE_DIR" not in os.environ:
    os.environ["SYSTOLIC_CACHE_DIR"] = tempfile.mkdtemp(prefix="systolic-tests-")
    atexit.register(shutil.rmtree, os.environ["SYSTOLIC_CACHE_DIR"], ignore_errors=True)

# before JAX starts: see systolic.runtime._platform on the size of the thread pool
os.environ.setdefault("NPROC", "16")

import jax
import pytest
import torch

jax.config.update("jax_num_cpu_devices", 8)
# libtpu is installed for its compiler; started as a device without chips it may end the process
jax.config.update("jax_platforms", os.environ.get("SYSTOLIC_TEST_PLATFORMS", "cpu"))
# a GPU would round float32 operands to TensorFloat-32; where a run says how exact it is, that holds
if not jax.config.values["jax_platforms"].startswith("cpu"):
    jax.config.update("jax_default_matmul_precision", "highest")


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not walk it again after every few thousand objects of a trace."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    # pytest's own handler makes PyTorch write a record of every event of a trace
    logging.getLogger("torch.__trace").disabled = True


def pytest_runtest_setup() -> None:
    """Begin no test after a time that `.ci/run` sets: a run that is cut off says nothing, one that skips says how many."""
    until = os.environ.get("SYSTOLIC_TESTS_UNTIL")
    if until and time.time() > float(until):
        pytest.skip("no time left: SYSTOLIC_TESTS_UNTIL")


@pytest.fixture(autouse=True)
def seeded(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every test from the same random state, in a directory of its own."""
    torch.manual_seed(0)
    monkeypatch.chdir(str(tmp_path))


LONG = frozenset((Path(__file__).parent / "long.txt").read_text().split())
"""Tests that take seconds a row, which `make test-tables` runs; `scripts/long_tests.py` writes the list."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a large table marked `thin(n, m)` the first row and about every n-th other one, always the same, stay fast.

    About every m-th of the others runs in continuous integration, the rest in `make test-all` only. Of a table marked
    `tables(every=m)` so do the first row and about every m-th other one: none is left out whole. Tests in `LONG` are marked
    `tables`, unless they run in `make test-all` only, and come first.

    `.ci/run` sets SYSTOLIC_TESTS_FROM to a number that is never the same: the tests begin at that place, and go round. Time
    ends before all of them have run, and would else always leave the same ones.
    """
    begun: set[str] = set()
    for item in items:
        mark = item.get_closest_marker("thin")
        name = item.nodeid.partition("[")[0]
        if mark is not None and name in begun:
            every, of_others = (*mark.args, 1)[:2]
            among_others, place = divmod(zlib.crc32(item.nodeid.encode()), every)
            if place:
                item.add_marker(pytest.mark.slow if among_others % of_others else pytest.mark.tables)
        tables = item.get_closest_marker("tables")
        if tables is not None:
            item.add_marker(pytest.mark.slow)
            if name in begun and zlib.crc32(item.nodeid.encode()) % tables.kwargs.get("every", 1):
                item.own_markers = [mark for mark in item.own_markers if mark.name != "tables"]
        begun.add(name)
        if name in LONG and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.tables)
            item.add_marker(pytest.mark.slow)
    begin = os.environ.get("SYSTOLIC_TESTS_FROM")
    if begin:
        place = int(begin) % max(len(items), 1)
        items[:] = items[place:] + items[:place]
    else:
        items.sort(key=lambda item: item.nodeid.partition("[")[0] not in LONG)


PROOFS = ("libtpu", "lightning")
"""Packages that are a proof or an oracle: where they are missing, tests that need them would vanish from a green run."""


def _refuse_missing_proof(report: pytest.CollectReport | pytest.TestReport) -> None:
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    if os.environ.get("CI") == "true" and any(f"could not import '{name}" in reason for name in PROOFS):
        report.outcome = "failed"
        report.longrepr = f"{reason}; with CI=true nothing that needs {' or '.join(PROOFS)} may be skipped: install it"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In continuous integration, a test that was skipped for want of a proof fails."""
    report = yield
    _refuse_missing_proof(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for whole modules."""
    report = yield
    _refuse_missing_proof(report)
    return report


@pytest.fixture
def one_thread() -> Generator[None, None, None]:
    """For small batches: threads only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
