"""The archive that a local save writes is PyTorch's, with its checksums."""

import io
import signal
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from systolic.checkpoint import _archive, atomic_save

CHECKPOINTS: dict[str, dict[str, Any]] = {
    "small": {"state_dict": {"x": torch.ones(3)}, "epoch": 1},
    "large": {"state_dict": {"x": torch.arange(300_000.0), "y": torch.randn(7, 1000)}},
    "tied": {"state_dict": dict.fromkeys("ab", torch.randn(2000))},
    "views": {"state_dict": {"x": torch.randn(100, 100).T, "y": torch.randn(10_000)[::2]}},
    "empty": {"state_dict": {"x": torch.empty(0)}},
    "types": {"state_dict": {"x": torch.randn(5000).bfloat16(), "y": torch.arange(5000) > 7}, "text": "x" * 10_000},
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_file_is_pytorchs_byte_for_byte(name: str, tmp_path: Path) -> None:
    atomic_save(CHECKPOINTS[name], tmp_path / "ours.ckpt")
    with open(tmp_path / "theirs.ckpt", "wb") as file:  # by its path PyTorch would name the archive after the file
        torch.save(CHECKPOINTS[name], file)
    assert (tmp_path / "ours.ckpt").read_bytes() == (tmp_path / "theirs.ckpt").read_bytes()
    with zipfile.ZipFile(tmp_path / "ours.ckpt") as archive:
        assert archive.testzip() is None
    read = torch.load(tmp_path / "ours.ckpt", weights_only=True)
    for key, value in CHECKPOINTS[name]["state_dict"].items():
        assert torch.equal(read["state_dict"][key], value)


def test_a_save_that_reads_its_pieces_again_has_the_same_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atomic_save(CHECKPOINTS["large"], tmp_path / "x.ckpt")
    monkeypatch.setattr(_archive, "_LARGE", 2**40)
    monkeypatch.setattr(_archive, "_CHUNK", 1000)
    atomic_save(CHECKPOINTS["large"], tmp_path / "y.ckpt")
    assert (tmp_path / "x.ckpt").read_bytes() == (tmp_path / "y.ckpt").read_bytes()


def test_those_who_want_no_checksums_get_none(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        atomic_save(CHECKPOINTS["large"], tmp_path / "x.ckpt")
    finally:
        torch.serialization.set_crc32_options(True)
    with zipfile.ZipFile(tmp_path / "x.ckpt") as archive:
        assert not any(record.CRC for record in archive.infolist())
    assert torch.load(tmp_path / "x.ckpt", weights_only=True)["state_dict"]["x"].equal(torch.arange(300_000.0))


class _Interrupted(io.BytesIO):
    """A file one of whose writes meets with what a signal's handler raises."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def write(self, data: Any) -> int:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        return super().write(data)


def test_an_interrupt_in_the_middle_of_a_save_is_an_interrupt() -> None:
    ends = []
    for at in range(1, 80):
        try:
            _archive.write_all(CHECKPOINTS["large"], _Interrupted(at), checksums=True)
            ends.append("whole")
        except KeyboardInterrupt:
            ends.append("interrupted")
    writes = ends.index("whole")
    assert writes > 10
    assert ends == ["interrupted"] * writes + ["whole"] * (len(ends) - writes)
