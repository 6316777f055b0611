"""State that is split over two processes: each writes its shards, completed together; the run goes on with one, or with two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from distributed.processes import run_processes

from systolic.checkpoint import load

SCRIPT = Path(__file__).parent / "sharded_saving.py"


def run(directory: Path, processes: int, *options: str) -> dict[str, Any]:
    """What the processes tell alike."""
    cores = 4 // processes
    found = run_processes(SCRIPT, processes, cores, str(directory), "--cores", str(cores), *options)
    assert [one.pop("process") for one in found] == list(range(processes))
    assert all(one == found[0] for one in found)
    return found[0]


def require_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["steps"] == expected["steps"]
    assert found["weights"] == pytest.approx(expected["weights"], rel=1e-5, abs=1e-6)


@pytest.mark.tables
def test_each_process_writes_its_shards_and_any_number_goes_on(tmp_path: Path) -> None:
    alone = run(tmp_path / "alone", 1)
    require_same(run(tmp_path / "two", 2), alone)
    names = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert names == ["epoch=0-step=4.ckpt", "epoch=1-step=8.ckpt", "last.ckpt"]
    for name in names:
        written = {
            process: sum(
                file.stat().st_size for file in (tmp_path / "two" / name).glob(f"arrays-*/ocdbt.process_{process}/d/*")
            )
            for process in (0, 1)
        }
        state = 3 * 2 * 64 * 128 * 4
        assert all(size > 0.4 * state for size in written.values()), "a half each"
    straight = run(tmp_path / "straight", 1, "--epochs", "3")
    last = {kind: str(tmp_path / kind / "last.ckpt") for kind in ("alone", "two")}
    require_same(run(tmp_path / "two to one", 1, "--epochs", "3", "--ckpt-path", last["two"]), straight)
    require_same(run(tmp_path / "one to two", 2, "--epochs", "3", "--ckpt-path", last["alone"]), straight)
    require_same(run(tmp_path / "two", 2, "--epochs", "3", "--ckpt-path", "last"), straight)
    require_same(run(tmp_path / "ddp", 1, "--strategy", "ddp", "--epochs", "3", "--ckpt-path", last["two"]), straight)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [pytest.param("fsdp", marks=pytest.mark.tables), "hsdp"])
def test_one_file_is_gathered_from_two_processes(strategy: str, tmp_path: Path) -> None:
    whole = run(tmp_path / "files", 2, "--kind", "files", "--strategy", strategy)
    assert whole == run(tmp_path / "shards", 2, "--strategy", strategy)
    for name in ("epoch=0-step=4.ckpt", "last.ckpt"):
        found, expected = load(tmp_path / "files" / name), load(tmp_path / "shards" / name)
        for part in ("state_dict", "optimizer_states"):
            torch.testing.assert_close(found[part], expected[part], rtol=0, atol=0)
    straight = run(tmp_path / "straight", 1, "--epochs", "3")
    last = str(tmp_path / "files" / "last.ckpt")
    require_same(run(tmp_path / "on", 2, "--epochs", "3", "--strategy", strategy, "--ckpt-path", last), straight)


@pytest.mark.slow
def test_one_file_takes_one_copy_of_the_state_on_the_first_host_alone(tmp_path: Path) -> None:
    first, second = (one["share"] for one in run_processes(SCRIPT.with_name("gathering.py"), 2, 2, str(tmp_path)))
    assert 0.9 < first <= 1.2, "the state that is written"
    assert second <= 0.3, "a few tensors, of 1/32 of the state each"


@pytest.mark.slow
def test_a_process_that_dies_while_all_save_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """In the save of the second epoch: the shards of both are written, and the directory is not taken for a checkpoint."""
    with pytest.raises(AssertionError, match="ended with"):
        run(tmp_path / "kept", 2, "--dies-in-save", "2")
    assert load(tmp_path / "kept" / "last.ckpt")["global_step"] == 4
    torn = tmp_path / "kept" / "epoch=1-step=8.ckpt"
    assert any(torn.iterdir())
    assert not (torn / "contents.ckpt").exists()
    straight = run(tmp_path / "straight", 1)
    require_same(run(tmp_path / "kept", 2, "--ckpt-path", "last"), straight)
