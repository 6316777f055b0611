"""Every spelling of `accelerator` and `devices`, on 8 simulated cores (F1-F3, F5-F7)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import pytest

import systolic as L
from systolic.exceptions import MisconfigurationException
from systolic.runtime._platform import find_devices

CORES = jax.devices("cpu")


# defect 10: devices took 1, all or one index
@pytest.mark.parametrize(
    ("devices", "indices"),
    [
        (1, [0]),
        (8, range(8)),
        ("8", range(8)),
        (" 2 ", [0, 1]),
        ([1], [1]),
        ((3, 0), [3, 0]),
        ("0,2", [0, 2]),
        ("1,", [1]),
        (" 0 , 7 ", [0, 7]),
        (range(2, 4), [2, 3]),
    ],
)
def test_spellings(devices: Any, indices: Any) -> None:
    assert find_devices("cpu", devices) == [CORES[i] for i in indices]


@pytest.mark.parametrize("devices", ["auto", -1, "-1"])
def test_all_on_a_processor_is_one_core(devices: Any) -> None:
    """Simulated cores are made for a number that was asked for; there is no "all of them"."""
    assert find_devices("cpu", devices) == CORES[:1]


def test_nothing_asked_for_is_everything_automatic() -> None:
    quiet = {"logger": False, "enable_checkpointing": False, "max_epochs": 1}
    assert L.Trainer(**quiet).devices == L.Trainer(accelerator="auto", devices="auto", strategy="auto", **quiet).devices


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        (0, "at least one device"),
        (-2, "at least one device"),
        ("0", "at least one device"),
        ([], "the list is empty"),
        (",", "the list is empty"),
        ([-1], "indices are integers from 0"),
        ([1.0], "indices are integers from 0"),
        ([True], "indices are integers from 0"),
        ([0, 0], "repeated"),
        ("1,1", "repeated"),
        ("eight", "'eight' is not a number"),
        ("1,x", "'x' is not a number"),
        ("", "'' is not a number"),
        (True, "a bool"),
        (None, "expected an integer, a list of indices, or a string"),
        (2.0, "expected an integer, a list of indices, or a string"),
        ({0}, "expected an integer, a list of indices, or a string"),
    ],
)
def test_impossible_requests_say_what_is_allowed(devices: Any, why: str) -> None:
    with pytest.raises(MisconfigurationException) as raised:
        find_devices("cpu", devices)
    text = str(raised.value)
    assert why in text
    assert f"Received: {devices!r}" in text
    assert "Allowed: a count such as 8, indices such as [0]" in text


@pytest.mark.parametrize("devices", [9, "9", [9], "9,", [1, 8], "3,20"])
def test_more_than_there_are_names_the_request_and_what_there_is(devices: Any) -> None:
    with pytest.raises(MisconfigurationException) as raised:
        find_devices("cpu", devices)
    text = str(raised.value)
    assert repr(devices) in text
    assert "JAX was already started with 8" in text
    assert "xla_force_host_platform_device_count=" in text


@pytest.mark.parametrize("accelerator", ["tpus", "CPU", None, 3, ["cpu"]])
def test_an_unknown_accelerator_is_named_with_the_known_ones(accelerator: Any) -> None:
    with pytest.raises(MisconfigurationException) as raised:
        find_devices(accelerator, 1)
    assert repr(accelerator) in str(raised.value)
    assert "'auto', 'tpu', 'gpu', 'cuda', 'cpu'" in str(raised.value)


def test_a_misspelt_accelerator_gets_a_suggestion() -> None:
    with pytest.raises(MisconfigurationException, match="'tpu'"):
        find_devices("tpuu", 1)


# promise 19: L#6849
def test_no_tpu_says_what_was_looked_for_and_the_three_ways_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("systolic.runtime._platform.chip_files", lambda: [])
    with pytest.raises(MisconfigurationException) as raised:
        find_devices("tpu", 8)
    text = str(raised.value)
    assert text.startswith("No TPU devices were found")
    for part in ("/dev/accel", "(1) fix the environment", "(2) simulate", "accelerator='cpu', devices=8", "(3)", "preflight"):
        assert part in text


@pytest.mark.parametrize("accelerator", ["gpu", "cuda"])
def test_no_gpu_says_so(accelerator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glob.glob", lambda pattern: [])
    with pytest.raises(MisconfigurationException, match="No GPU devices were found"):
        find_devices(accelerator, 1)


FRESH = "import jax; from systolic.runtime._platform import find_devices as find; "


def in_a_fresh_process(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("NPROC", "XLA_FLAGS")}
    return subprocess.run(
        [sys.executable, "-c", FRESH + code], env=environment | variables, capture_output=True, text=True, timeout=120
    )


POOL = (
    "import os, pathlib; names = [(task / 'comm').read_text().strip() for task in pathlib.Path('/proc/self/task').iterdir()]; "
    "print(len(jax.devices()), names.count('tf_XLAEigen'), 'NPROC' in os.environ)"
)


def test_cores_are_made_on_demand_with_two_threads_for_each_of_them() -> None:
    threads = max(16, len(os.sched_getaffinity(0)))
    assert in_a_fresh_process("find('cpu', 8); " + POOL).stdout.split() == ["8", str(threads), "False"]


def test_one_core_has_a_thread_a_processor() -> None:
    """More are slower: they wait for each other in turn."""
    threads = max(2, len(os.sched_getaffinity(0)))
    assert in_a_fresh_process("find('cpu', 1); " + POOL).stdout.split() == ["1", str(threads), "False"]


def test_one_core_of_eight_that_the_environment_makes_has_threads_for_all_of_them() -> None:
    """A later run in this process may take them all."""
    threads = max(16, len(os.sched_getaffinity(0)))
    finished = in_a_fresh_process("find('cpu', 1); " + POOL, XLA_FLAGS="--xla_force_host_platform_device_count=8")
    assert finished.stdout.split() == ["8", str(threads), "False"]


def test_a_pool_sized_from_the_environment_is_respected() -> None:
    assert in_a_fresh_process("find('cpu', 2); " + POOL, NPROC="7").stdout.split() == ["2", "7", "True"]


@pytest.mark.tables
def test_a_number_of_cores_from_the_environment_is_respected() -> None:
    flags = "--xla_force_host_platform_device_count=6"
    code = "print(find('cpu', [5]), len(jax.devices()))"
    finished = in_a_fresh_process(code, XLA_FLAGS=flags)
    assert finished.stdout.split() == ["[CpuDevice(id=5)]", "6"], finished.stderr


def test_more_cores_later() -> None:
    """JAX starts again, with threads for all of them; what lies on the old ones can be read, and computed with there."""
    threads = max(16, len(os.sched_getaffinity(0)))
    code = "x = jax.numpy.ones(4); print(len(find('cpu', 2)), len(find('cpu', 8)), len(find('cpu', 1)), float((x * 2).sum())); "
    words = in_a_fresh_process(code + POOL).stdout.split()
    assert words[:5] == ["2", "8", "1", "8.0", "8"]
    assert int(words[5]) >= threads


@pytest.mark.tables
@pytest.mark.parametrize("told", ["flag", "configuration"])
def test_a_number_of_cores_that_the_user_chose_stays(told: str) -> None:
    chosen = "jax.config.update('jax_num_cpu_devices', 2); " if told == "configuration" else ""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"} if told == "flag" else {}
    finished = in_a_fresh_process(f"{chosen}jax.devices(); find('cpu', 8)", **flags)
    assert finished.returncode != 0
    error = finished.stderr.splitlines()[-1]
    assert "devices=8 asks for 8 simulated CPU cores, but JAX was already started with 2" in error
    assert "--xla_force_host_platform_device_count=8" in error
    assert "restart the kernel" in error


@pytest.mark.tables
def test_fewer_cores_than_before_are_a_part_of_them() -> None:
    assert in_a_fresh_process("find('cpu', 4); print(len(find('cpu', 2)), len(find('cpu')))").stdout.split() == ["2", "1"]


@pytest.mark.tables
def test_libtpu_starts_in_silence_where_there_is_no_chip() -> None:
    pytest.importorskip("libtpu")
    code = "from systolic.runtime._platform import find_devices; print(find_devices('cpu')[0].platform)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (run.stdout, run.stderr) == ("cpu\n", "")


@pytest.mark.slow
def test_the_processor_is_there_where_the_tpu_cannot_be_started() -> None:
    """On a TPU machine JAX starts both or none; the chips may be held by another process."""
    finished = in_a_fresh_process("print(len(find('cpu', 4)))", JAX_PLATFORMS="tpu,cpu")
    assert finished.stdout.split() == ["4"], finished.stderr
