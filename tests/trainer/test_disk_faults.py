"""Disks that fail in the middle of a run, for real: full, read-only, and away; the run ends or goes on, as the user chose."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
import systolic.checkpoint
from systolic.callbacks import ModelCheckpoint
from systolic.plugins import AsyncCheckpointIO, CheckpointIO, TolerantCheckpointIO

pytestmark = pytest.mark.skipif(os.getuid() != 0 or shutil.which("mount") is None, reason="only root can mount file systems")
QUIET: dict[str, Any] = {
    "accelerator": "cpu", "devices": 1, "compile": False, "logger": False, "enable_progress_bar": False,
    "enable_model_summary": False, "max_epochs": 2,
}  # fmt: skip


def mount(*arguments: str) -> None:
    if subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode:
        pytest.skip("this container cannot mount")


class Disk:
    """A small file system on a read-only mount point.

    Args:
        path: an empty directory.
    """

    def __init__(self, path: Path) -> None:
        self.base, self.place = path / "base", path / "base" / "disk"
        self.base.mkdir()
        mount("-t", "tmpfs", "tmpfs", str(self.base))
        self.place.mkdir()
        self.store = path / "store"
        self.store.mkdir()
        mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(self.store))
        mount("--bind", str(self.store), str(self.place))
        mount("-o", "remount,ro", str(self.base))

    def fail(self, how: str) -> None:
        """Be full, read-only, or away."""
        if how == "full":
            free = os.statvfs(self.place)
            (self.place / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize))
        elif how == "read-only":
            mount("-o", "remount,ro", str(self.store))
        else:
            subprocess.run(["umount", str(self.place)], check=True)

    def mend(self, how: str) -> None:
        """Be as before."""
        if how == "full":
            (self.place / "filler").unlink()
        elif how == "read-only":
            mount("-o", "remount,rw", str(self.store))
        else:
            mount("--bind", str(self.store), str(self.place))

    def close(self) -> None:
        for path in (self.place, self.store, self.base):
            subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.close()


class Line(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layer = torch.nn.Linear(100, 300)  # 360 kB with Adam's moments

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


class Faults(L.Callback):
    """The disk fails before one step's save, and is mended before another's."""

    def __init__(self, disk: Disk, how: str, first: int, mended: int | None) -> None:
        self.disk, self.how, self.first, self.mended = disk, how, first, mended

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step in (self.first, self.mended):
            trainer.checkpoint_io.wait()
            (self.disk.fail if trainer.global_step == self.first else self.disk.mend)(self.how)


def fit(path: Path, *callbacks: L.Callback, io: CheckpointIO | None = None, **options: Any) -> Line:
    """Train ten steps, each of which is saved."""
    module, keeps = Line(), ModelCheckpoint(path, every_n_train_steps=1, save_last=True, save_top_k=1)
    trainer = L.Trainer(**QUIET, callbacks=[keeps, *callbacks], plugins=io)
    trainer.fit(
        module, DataLoader(TensorDataset(torch.randn(20, 100, generator=torch.Generator().manual_seed(1))), 4), **options
    )
    assert trainer.global_step == 10
    return module


@pytest.mark.parametrize("how", ["full", "read-only", "away"])
@pytest.mark.parametrize("io", [None, AsyncCheckpointIO])
def test_the_run_ends_with_the_files_name_and_goes_on_from_the_last_good_one(
    how: str, io: type[AsyncCheckpointIO] | None, disk: Disk, tmp_path: Path
) -> None:
    kept = disk.place / "kept"
    with pytest.raises(OSError, match=r"The checkpoint cannot be saved: .*/base/disk/kept/.*\.ckpt") as caught:
        fit(kept, Faults(disk, how, 6, None), io=io() if io else None)
    assert str(kept) in str(caught.value.filename)
    disk.mend(how)
    files = list(kept.iterdir())
    assert len(files) == 2, files  # the last one and the best one; nothing half written
    assert {systolic.checkpoint.load(path)["global_step"] for path in files} == {6}
    ours, whole = fit(kept, ckpt_path="last"), fit(tmp_path / "whole")
    assert torch.equal(ours.layer.weight, whole.layer.weight)


@pytest.mark.parametrize("how", ["full", "read-only", "away"])
@pytest.mark.parametrize("background", [False, True])
def test_the_run_goes_on_where_the_user_chose_it(how: str, background: bool, disk: Disk, tmp_path: Path) -> None:
    kept, tolerant = disk.place / "kept", TolerantCheckpointIO()
    with pytest.warns(UserWarning, match="was not ") as said:
        ours = fit(kept, Faults(disk, how, 4, 7), io=AsyncCheckpointIO(tolerant) if background else tolerant)
    texts = [str(warning.message) for warning in said]
    assert all(str(kept) in text and "Training goes on" in text for text in texts), texts
    assert any("epoch=0-step=5.ckpt" in text and "the newest checkpoint is" in text for text in texts), texts
    assert tolerant.failures == 0
    assert sorted(path.name for path in kept.iterdir()) == ["epoch=1-step=10.ckpt", "last.ckpt"]
    assert {systolic.checkpoint.load(path)["global_step"] for path in kept.iterdir()} == {10}
    assert torch.equal(ours.layer.weight, fit(tmp_path / "whole").layer.weight)


def test_a_disk_that_fails_for_good_leaves_the_last_good_files(disk: Disk) -> None:
    kept = disk.place / "kept"
    with pytest.warns(UserWarning, match="was not saved"):
        fit(kept, Faults(disk, "full", 4, None), io=TolerantCheckpointIO())
    assert {systolic.checkpoint.load(path)["global_step"] for path in kept.iterdir()} == {4}


def test_too_many_failures_in_a_row_end_the_run(disk: Disk) -> None:
    with (
        pytest.warns(UserWarning, match=r"\d in a row failed") as said,
        pytest.raises(OSError, match=r"The checkpoint cannot be saved: No space left") as caught,
    ):
        fit(disk.place / "kept", Faults(disk, "full", 4, None), io=TolerantCheckpointIO(max_failures=3))
    assert [str(warning.message)[-17:] for warning in said if "saved:" in str(warning.message)] == [
        f"{count} in a row failed."[-17:] for count in (1, 2, 3)
    ]
    assert "3 saves before this one failed as well" in caught.value.__notes__[0]


def test_what_cannot_be_tolerated_is_refused() -> None:
    with pytest.raises(L.MisconfigurationException, match=r"AsyncCheckpointIO\(TolerantCheckpointIO\(\)\)"):
        TolerantCheckpointIO(AsyncCheckpointIO())
    with pytest.raises(L.MisconfigurationException, match="`max_failures`.*positive integer or None.*Received: 0"):
        TolerantCheckpointIO(max_failures=0)
