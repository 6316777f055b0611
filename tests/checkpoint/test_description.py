"""Descriptions of checkpoints: everything in them, from ours and Lightning's, without their tensors in memory."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer import three_ways

import systolic as L
from systolic.checkpoint import CheckpointFormatError, Description, Part, TensorEntry, atomic_save, describe, load


def trained(package: Any, path: Path) -> Path:
    """A checkpoint of a small network under Adam, after three steps."""

    class Model(package.LightningModule):
        def __init__(self, width: int = 5) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 1))

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    options = {"compile": False} if package is L else {}
    trainer = package.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=path.parent, **options,
    )  # fmt: skip
    trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(12, 4)), 4))
    trainer.save_checkpoint(path)
    return path


def part(found: Description, name: str) -> Part:
    return next(part for part in found.parts if part.name == name)


@pytest.mark.filterwarnings("ignore")  # of Lightning
@pytest.mark.parametrize("package", [L, lightning], ids=["systolic", "Lightning"])
def test_everything_in_a_file_is_described(package: Any, tmp_path: Path) -> None:
    path = trained(package, tmp_path / "a.ckpt")
    found, whole = describe(path), load(path)
    assert (found.path, found.step, found.epoch) == (str(path), 3, whole["epoch"])
    assert found.bytes == path.stat().st_size
    assert found.versions.get("systolic") == (L.__version__ if package is L else None)
    assert found.versions["Lightning"] == whole["pytorch-lightning_version"]
    assert found.checksum == f"CRC-32 of {len(zipfile.ZipFile(path).namelist())} records"
    weights = {
        name: TensorEntry(name, tuple(t.shape), str(t.dtype)[6:], t.numel() * t.element_size())
        for name, t in whole["state_dict"].items()
    }
    assert part(found, "state_dict") == Part("state_dict", list(weights.values()), {})
    moments = {tensor.name: tensor for tensor in part(found, "optimizer_states[0]").tensors}
    assert moments["state.0.exp_avg"] == TensorEntry("state.0.exp_avg", (5, 4), "float32", 80)
    assert part(found, "optimizer_states[0]").values["param_groups.0.lr"] == "0.001"
    assert part(found, "hyper_parameters").values == {"width": "5"}
    assert any(p.name.startswith("callbacks[ModelCheckpoint") for p in found.parts)
    assert {p.name.partition("[")[0] for p in found.parts} == set(whole)


def test_shared_memory_is_counted_once_and_parts_of_it_by_their_size(tmp_path: Path) -> None:
    weight = torch.ones(10, 10)
    atomic_save({"state_dict": {"a": weight, "tied": weight, "other": torch.ones(3)}}, tmp_path / "a.ckpt")
    found = describe(tmp_path / "a.ckpt")
    assert found.tensor_bytes == 412
    assert part(found, "state_dict").bytes == 812


def test_large_tensors_are_not_read_into_memory(tmp_path: Path) -> None:
    """By what the process holds at most: its own allocations, and the pages of PyTorch's, which are mapped from the file."""
    atomic_save({"state_dict": {"w": torch.ones(2**23)}}, tmp_path / "a.ckpt")
    before = resident_anonymous()
    tracemalloc.start()
    found = describe(tmp_path / "a.ckpt")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.tensor_bytes == 2**25
    assert peak < 2**22
    assert resident_anonymous() - before < 2**22


def resident_anonymous() -> int:
    """Bytes of this process's memory that no file stands for."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def test_files_without_checksums_say_so_and_can_be_read(tmp_path: Path) -> None:
    """PyTorch writes none after `set_crc32_options(False)`, and in its format of before version 1.6."""
    contents = {"state_dict": {"w": torch.ones(3)}, "epoch": 2}
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(contents, tmp_path / "unchecked.ckpt")
    finally:
        torch.serialization.set_crc32_options(before)
    torch.save(contents, tmp_path / "old.ckpt", _use_new_zipfile_serialization=False)
    for name in ("unchecked.ckpt", "old.ckpt"):
        found = describe(tmp_path / name)
        assert (found.checksum, found.epoch, found.tensor_bytes) == (None, 2, 12)
        torch.testing.assert_close(load(tmp_path / name)["state_dict"], contents["state_dict"])
    assert "before version 1.6" in found.format


def test_an_object_in_another_file_system(tmp_path: Path) -> None:
    atomic_save({"state_dict": {"w": torch.ones(3)}, "global_step": 7}, "memory://described/a.ckpt")
    found = describe("memory://described/a.ckpt")
    assert (found.step, found.tensor_bytes, found.checksum) == (7, 12, None)
    assert found.bytes > 12


def test_contents_without_an_end_are_refused(tmp_path: Path) -> None:
    itself: list[Any] = [torch.ones(1)]
    itself.append(itself)
    torch.save({"state_dict": {"w": itself}}, tmp_path / "a.ckpt")
    with pytest.raises(CheckpointFormatError, match="nested without end"):
        describe(tmp_path / "a.ckpt")
    doubled: list[Any] = [torch.ones(1)]
    for _ in range(40):
        doubled = [doubled, doubled]
    torch.save({"state_dict": {"w": doubled}}, tmp_path / "b.ckpt")
    with pytest.raises(CheckpointFormatError, match="more than 1,000,000 values"):
        describe(tmp_path / "b.ckpt")


def test_nothing_that_is_damaged_or_runs_code_is_described(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save({"state_dict": {"w": three_ways.quiet_trainer}}, path)
    with pytest.raises(CheckpointFormatError, match="more than tensors and plain values"):
        describe(path)
    atomic_save({"state_dict": {"w": torch.zeros(1000)}}, path)
    whole = path.read_bytes()
    at = whole.index(bytes(4000))
    path.write_bytes(whole[: at + 100] + b"\1" + whole[at + 101 :])
    with pytest.raises(CheckpointFormatError, match="is damaged: its checksum does not fit its contents .*data/0"):
        describe(path)
