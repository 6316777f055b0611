"""A process that differs from the others, or does alone what all must do: an error that says who and what, and no hang."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed.processes import TESTS

SCRIPT = Path(__file__).with_name("differing.py")


def launch(directory: Path, act: str, *command: str) -> tuple[int, str]:
    """Run the script in two processes; the exit code, and all that they said."""
    words = ["launch", "--processes", "2", "--devices-per-process", "2", "--", *(command or (sys.executable, str(SCRIPT)))]
    environment = {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "PYTHONWARNINGS": "ignore"}
    if act == "slow":
        del environment["PYTHONWARNINGS"]
    began = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-m", "systolic", *words, str(directory), act],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert time.monotonic() - began < 120, "nobody waits for ever"
    return run.returncode, run.stdout


# promise 10: L#18131, what would hang at the start ends with an error
# promise 25: X#7974, J#9042, processes that would wait for each other
@pytest.mark.parametrize(
    ("act", "expected"),
    [
        ("loss", ["would compile different programs: process 1 has", "dense<2.000000e+00>", "where process 0 has"]),
        *(
            pytest.param(act, expected, marks=pytest.mark.tables(every=3))
            for act, expected in [
                ("branch", ["would compile different programs: process 1 has"]),
                ("late", ["in different places", "compile a program", "conclude a batch"]),
                ("drifting", ["differ in the step that they run", "its numbers is [2, 0, 2, 2.0, 0.05] in process 0"]),
                ("own draws", ["differ in the step that they run", "its numbers is [0, 0, 0, 0.05, "]),
                ("syncs", ["in different places: process 1 wants to compile a program", "process 0 waits in step"]),
                ("length", ["their data for fit", "the number of samples of loader 0 is 80 in process 0, 64 in process 1"]),
                ("other stream", ["do not read the same samples", "process 0: batch 0, of 8 samples, digest"]),
                (
                    "shorter stream",
                    [
                        "do not have the same batches",
                        "process 0: batch 4, of 8 samples; process 1: batch 4, of 8 samples, its last",
                    ],
                ),
                ("seed", ["differ in their seed", "seed_everything is 3 in process 0, 4 in process 1"]),
                ("version", ["differ in their versions", "1.0 in process 1"]),
                ("weights", ["the tensors of Line", "layer.weight is torch.float32 (1, 4) in process 0, torch.float32 (2, 4)"]),
                ("setting", ["the Trainer's settings", "gradient_clip_val is None in process 0, 1.0 in process 1"]),
                ("barrier", ["in different places", "wait for all (alone)", "conclude a batch"]),
                ("leaves", ["Process 1 of this run has ended, and process 0 wants to conclude a batch with it", "sys.exit()"]),
            ]
        ),
    ],
)
def test_what_differs_is_named(act: str, expected: list[str], tmp_path: Path) -> None:
    code, said = launch(tmp_path, act)
    assert code == 1, said
    assert all(text in said for text in ["MisconfigurationException", *expected]), said


# promise 25: X#7974, one that ended is not waited for in a step that cannot finish without it
@pytest.mark.tables
def test_a_process_that_ends_alone_is_named(tmp_path: Path) -> None:
    code, said = launch(tmp_path, "leaves before a step")
    assert code == 1, said
    assert "Process 1 of this run has ended after 7 dispatched steps, and others wait for it in step 8." in said, said


# promise 25: X#7974, nor in a program that nobody counts
@pytest.mark.tables(every=3)
@pytest.mark.parametrize("act", ["program", "gathered array", "own work"])
def test_a_process_that_ends_alone_is_named_where_values_are_missing(act: str, tmp_path: Path) -> None:
    code, said = launch(tmp_path, act, sys.executable, str(SCRIPT.with_name("leaving.py")))
    expected = "[0] systolic: Process 1 of this run has ended, and process 0 waits for values that both make."
    assert (code, expected in said) == ((0, False) if act == "own work" else (1, True)), said


@pytest.mark.tables
def test_other_code_is_named(tmp_path: Path) -> None:
    for process in range(2):
        (tmp_path / str(process)).mkdir()
        shutil.copy(SCRIPT, tmp_path / str(process) / "differing.py")
    with (tmp_path / "1" / "differing.py").open("a") as script:
        script.write("# another version\n")
    shell = f'exec {sys.executable} {tmp_path}/$SYSTOLIC_PROCESS/differing.py "$@"'
    code, said = launch(tmp_path, "none", "bash", "-c", shell, "bash")
    assert code == 1, said
    assert "differ in their code" in said
    assert "differing.py is" in said


# promise 18: L#8358, decisions of one process are those of all
@pytest.mark.tables(every=3)
@pytest.mark.parametrize(
    ("act", "expected"),
    [
        ("reads", "ended at 30 "),
        ("reads alone", "ended at 30 "),
        ("stops", "ended at 6 "),
        ("early", "ended at 20 "),
        ("plateau", "ended at 30 0.0125 "),
    ],
)
def test_all_decide_alike(act: str, expected: str, tmp_path: Path) -> None:
    code, said = launch(tmp_path, act)
    assert code == 0, said
    ends = [line for line in said.splitlines() if "ended at" in line]
    assert len(ends) == 2
    assert all(expected in line and line.endswith(" alike") for line in ends), ends


@pytest.mark.tables(every=3)
@pytest.mark.parametrize("act", ["timer", "interval", "max_time"])
def test_clocks_of_one_process_count_for_all(act: str, tmp_path: Path) -> None:
    code, said = launch(tmp_path, act)
    assert code == 0, said
    assert sum("ended at" in line and line.endswith(" alike") for line in said.splitlines()) == 2, said
    if act == "interval":
        assert list(tmp_path.glob("*.ckpt"))


@pytest.mark.tables
def test_a_slow_host_is_named(tmp_path: Path) -> None:
    code, said = launch(tmp_path, "slow")
    assert code == 0, said
    [line] = [line for line in said.splitlines() if "is slow" in line]
    assert line.startswith("[0] ")
    assert "Process 1 is slow: it takes" in line
