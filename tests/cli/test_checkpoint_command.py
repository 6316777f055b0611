"""`systolic checkpoint`: what is printed of whole files, and of others."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch

from systolic.checkpoint import atomic_save, load
from systolic.cli import main


def saved(path: Path) -> Path:
    contents = {
        "epoch": 2,
        "global_step": 30,
        "systolic_version": "0.1.0",
        "pytorch-lightning_version": "2.6.6",
        "state_dict": {"net.weight": torch.zeros(64, 32), "net.bias": torch.zeros(64, dtype=torch.bfloat16)},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(64, 32)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}],
        "hyper_parameters": {"\x1b[31mred": "\n"},
        "loops": {f"counter{i}": i for i in range(20)},
    }
    atomic_save(contents, path)
    return path


def test_show_prints_what_is_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "a.ckpt")
    assert main(["checkpoint", "show", str(path)]) == 0
    size = f"{path.stat().st_size / 1024:.1f} KiB"
    assert capsys.readouterr().out == (
        f"""{path}
  format      one file, an archive of PyTorch's
  versions    systolic 0.1.0, Lightning 2.6.6
  epoch       2
  step        30
  size        {size}, tensors in memory 16.1 KiB
  checksum    CRC-32 of 9 records: all fit
epoch: 2
global_step: 30
systolic_version: '0.1.0'
pytorch-lightning_version: '2.6.6'
state_dict: 2 tensors, 8.1 KiB
  net.weight  float32 [64, 32]  8.0 KiB
  net.bias    bfloat16 [64]  128 bytes
optimizer_states[0]: 1 tensor, 8.0 KiB, 2 other values
  state.0.exp_avg  float32 [64, 32]  8.0 KiB
  param_groups.0.lr = 0.1
  param_groups.0.params = [0]
hyper_parameters: 1 other value
  \\x1b[31mred = '\\n'
loops: 20 other values
"""
    )


def test_show_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "a.ckpt")
    assert main(["checkpoint", "show", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["step"], found["bytes"], found["checksum"]) == (30, path.stat().st_size, "CRC-32 of 9 records")
    parts = {part["name"]: part for part in found["parts"]}
    assert parts["state_dict"]["tensors"][0] == {"name": "net.weight", "shape": [64, 32], "dtype": "float32", "bytes": 8192}
    assert parts["loops"]["values"]["counter19"] == "19"


class Runs:
    """Code that a file would run if it were believed."""

    def __init__(self, told: Path) -> None:
        self.told = told

    def __reduce__(self) -> object:
        return Path.touch, (self.told,)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("kind", ["torn", "flipped", "malicious", "malicious pickle", "another", "empty"])
def test_what_is_wrong_is_said(kind: str, as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "a.ckpt")
    whole = path.read_bytes()
    if kind == "torn":
        path.write_bytes(whole[:-100])
    elif kind == "flipped":
        at = whole.index(bytes(4000))
        path.write_bytes(whole[:at] + b"\1" + whole[at + 1 :])
    elif kind == "malicious":
        torch.save({"state_dict": {}, "x": Runs(tmp_path / "ran")}, path)
    elif kind == "malicious pickle":
        path.write_bytes(pickle.dumps({"state_dict": Runs(tmp_path / "ran")}, protocol=2))
    elif kind == "another":
        torch.save([1, 2], path)
    else:
        path.write_bytes(b"")
    said = {
        "torn": "was cut off when it was copied",
        "flipped": "is damaged: its checksum does not fit its contents",
        "malicious": "is damaged, or holds more than tensors and plain values",
        "malicious pickle": "is not a checkpoint",
        "another": "holds an object of type list",
        "empty": "(0 bytes) is not a checkpoint",
    }[kind]
    assert main(["checkpoint", "show", str(path), *["--json"] * as_json]) == 1
    printed = capsys.readouterr()
    assert said in (json.loads(printed.out)["error"] if as_json else printed.err)
    assert as_json or printed.out == ""
    assert not (tmp_path / "ran").exists()


def test_a_missing_file_is_a_wrong_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path / "epoch=1.ckpt")
    assert main(["checkpoint", "show", str(tmp_path / "epoch=2.ckpt")]) == 2
    assert "Did you mean 'epoch=1.ckpt'" in capsys.readouterr().err


def test_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, shards, back = saved(tmp_path / "a.ckpt"), tmp_path / "shards.ckpt", tmp_path / "b.ckpt"
    contents = load(path)
    contents["state_dict"]["large"] = torch.arange(70000)
    atomic_save(contents, path)
    assert main(["checkpoint", "convert", str(path), str(shards)]) == 0
    assert capsys.readouterr().out.startswith(f"{shards}: a directory of shards, by orbax, ")
    assert main(["checkpoint", "show", str(shards)]) == 0
    printed = capsys.readouterr().out
    assert "  checksum    CRC-32 of " in printed
    assert "  large       int64 [70000]  546.9 KiB\n" in printed
    assert main(["checkpoint", "convert", str(shards), str(back)]) == 0
    assert capsys.readouterr().out.startswith(f"{back}: one file, an archive of PyTorch's, ")
    found = load(back)
    for name in ("state_dict", "optimizer_states"):
        torch.testing.assert_close(found.pop(name), contents.pop(name), rtol=0, atol=0)
    assert found == contents
    assert main(["checkpoint", "convert", str(shards), str(back)]) == 2
    assert "is there already" in capsys.readouterr().err
    (shards / "contents.ckpt").unlink()
    for words in (["convert", str(shards), str(tmp_path / "c.ckpt")], ["show", str(shards)]):
        assert main(["checkpoint", *words]) == 1
        assert "was not completed" in capsys.readouterr().err
