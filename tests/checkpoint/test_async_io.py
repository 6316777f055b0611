"""AsyncCheckpointIO: in order, in the background, and loud when it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from systolic.plugins import AsyncCheckpointIO, CheckpointIO, TorchCheckpointIO
from systolic.plugins.io import AsyncCheckpointIO as FromLightningsModule

CONTENTS = {"state_dict": {"x": torch.arange(5.0)}}


class Gated(TorchCheckpointIO):
    """Writes when it may, and notes what it did."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.done: list[str] = []

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        assert self.may_go.wait(20)
        super().save_checkpoint(checkpoint, path, storage_options)
        self.done.append(f"save {Path(path).name}")

    def remove_checkpoint(self, path: Any) -> None:
        super().remove_checkpoint(path)
        self.done.append(f"remove {Path(path).name}")

    def copy_checkpoint(self, source: Any, target: Any) -> None:
        super().copy_checkpoint(source, target)
        self.done.append(f"copy {Path(target).name}")

    def link_checkpoint(self, source: Any, link: Any) -> None:
        super().link_checkpoint(source, link)
        self.done.append(f"link {Path(link).name}")


class Failing(TorchCheckpointIO):
    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        raise OSError(28, "No space left on device")


def test_save_returns_before_the_file_is_there(tmp_path: Path) -> None:
    inner = Gated()
    io = AsyncCheckpointIO(inner)
    path = tmp_path / "a.ckpt"
    io.save_checkpoint(CONTENTS, path)
    assert not path.exists()
    assert io.exists(path)
    inner.may_go.set()
    io.wait()
    torch.testing.assert_close(torch.load(path, weights_only=True)["state_dict"], CONTENTS["state_dict"])
    io.teardown()
    assert FromLightningsModule is AsyncCheckpointIO


def test_everything_happens_in_order(tmp_path: Path) -> None:
    inner = Gated()
    io = AsyncCheckpointIO(inner)
    old, new = tmp_path / "old.ckpt", tmp_path / "new.ckpt"
    TorchCheckpointIO().save_checkpoint(CONTENTS, old)
    io.save_checkpoint(CONTENTS, new)
    io.copy_checkpoint(new, tmp_path / "last.ckpt")
    io.link_checkpoint(new, tmp_path / "link.ckpt")
    io.remove_checkpoint(old)
    assert old.exists(), "the old checkpoint went before the new one was there"
    inner.may_go.set()
    io.teardown()
    assert inner.done == ["save new.ckpt", "copy last.ckpt", "link link.ckpt", "remove old.ckpt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["last.ckpt", "link.ckpt", "new.ckpt"]


def test_loading_waits_for_the_file(tmp_path: Path) -> None:
    inner = Gated()
    io = AsyncCheckpointIO(inner)
    io.save_checkpoint(CONTENTS, tmp_path / "a.ckpt")
    threading.Timer(0.05, inner.may_go.set).start()
    assert torch.equal(io.load_checkpoint(tmp_path / "a.ckpt")["state_dict"]["x"], CONTENTS["state_dict"]["x"])
    io.teardown()


@pytest.mark.parametrize("action", ["save", "wait", "teardown", "load"])
def test_an_error_of_the_thread_is_raised_once(action: str, tmp_path: Path) -> None:
    io = AsyncCheckpointIO(Failing())
    io.save_checkpoint(CONTENTS, tmp_path / "a.ckpt")
    actions = {
        "save": lambda: io.save_checkpoint(CONTENTS, tmp_path / "b.ckpt"),
        "load": lambda: io.load_checkpoint(tmp_path / "a.ckpt"),
        "wait": io.wait,
        "teardown": io.teardown,
    }
    with pytest.raises(OSError, match="No space left") as error:
        actions[action]()
    assert any("in the background" in note for note in error.value.__notes__)
    io.teardown()


def test_after_a_failed_save_the_old_checkpoint_stays(tmp_path: Path) -> None:
    old = tmp_path / "old.ckpt"
    TorchCheckpointIO().save_checkpoint(CONTENTS, old)
    io = AsyncCheckpointIO(Failing())
    io.save_checkpoint(CONTENTS, tmp_path / "new.ckpt")
    io.remove_checkpoint(old)
    with pytest.raises(OSError, match="No space left"):
        io.teardown()
    assert [p.name for p in tmp_path.iterdir()] == ["old.ckpt"]


class OnDemand(ThreadPoolExecutor):
    """Runs what it was given when the test says so: a schedule that threads may have."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self.queue: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.queue.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run_next(self) -> None:
        future, action = self.queue.pop(0)
        future.set_result(action())


def test_the_old_checkpoint_stays_where_the_error_is_raised_before_its_removal_comes_up(tmp_path: Path) -> None:
    old, executor = tmp_path / "old.ckpt", OnDemand()
    TorchCheckpointIO().save_checkpoint(CONTENTS, old)
    io = AsyncCheckpointIO(Failing())
    io._executor = executor
    io.save_checkpoint(CONTENTS, tmp_path / "new.ckpt")
    io.copy_checkpoint(tmp_path / "new.ckpt", tmp_path / "last.ckpt")
    io.remove_checkpoint(old)
    executor.run_next()
    with pytest.raises(OSError, match="No space left"):
        io.check()
    executor.run_next(), executor.run_next()
    io.teardown()  # nothing more went wrong
    assert [p.name for p in tmp_path.iterdir()] == ["old.ckpt"]
    again = AsyncCheckpointIO(Failing())
    again._executor = executor = OnDemand()
    again.save_checkpoint(CONTENTS, tmp_path / "new.ckpt")
    executor.run_next()
    with pytest.raises(OSError, match="No space left"):
        again.check()
    again.remove_checkpoint(old)  # asked for after the error
    executor.run_next()
    again.teardown()
    assert not old.exists()


def test_no_thread_is_left(tmp_path: Path) -> None:
    io = AsyncCheckpointIO()
    before = threading.active_count()
    io.save_checkpoint(CONTENTS, tmp_path / "a.ckpt")
    io.teardown()
    assert threading.active_count() == before


def test_the_interface_alone_saves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        CheckpointIO().save_checkpoint(CONTENTS, tmp_path / "a.ckpt")


def test_values_are_those_of_the_call(tmp_path: Path) -> None:
    inner = Gated()
    io = AsyncCheckpointIO(inner)
    weight, steps = torch.zeros(3), [1]
    io.save_checkpoint({"state_dict": {"x": weight}, "steps": steps}, tmp_path / "a.ckpt")
    weight.add_(1)
    steps.append(2)
    inner.may_go.set()
    found = io.load_checkpoint(tmp_path / "a.ckpt")
    assert found["state_dict"]["x"].tolist() == [0, 0, 0]
    assert found["steps"] == [1]
    io.teardown()
