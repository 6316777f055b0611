"""Directories of shards as files, and back: the same content, and memory for some arrays at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from checkpoint.test_sharded import Opaque, assert_same, contents

from systolic.checkpoint import (
    CheckpointFormatError,
    CheckpointNotFoundError,
    ShardedCheckpointIO,
    TorchCheckpointIO,
    _conversion,
    convert,
    load,
    snapshot,
)
from systolic.exceptions import MisconfigurationException


@pytest.mark.parametrize("at_once", [_conversion._AT_ONCE, 1])
def test_there_and_back(at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_conversion, "_AT_ONCE", at_once)
    saved = contents(5)
    ShardedCheckpointIO().save_checkpoint(saved, tmp_path / "shards.ckpt")
    TorchCheckpointIO().save_checkpoint(snapshot(saved), tmp_path / "file.ckpt")
    convert(tmp_path / "shards.ckpt", tmp_path / "new" / "file.ckpt")
    whole = load(tmp_path / "new" / "file.ckpt")
    assert_same(whole, load(tmp_path / "file.ckpt"))
    assert whole["state_dict"]["tied"].data_ptr() == whole["state_dict"]["a"].data_ptr()
    assert torch.load(tmp_path / "new" / "file.ckpt", weights_only=True).keys() == saved.keys()
    convert(tmp_path / "new" / "file.ckpt", tmp_path / "again.ckpt")
    assert (tmp_path / "again.ckpt").is_dir()
    assert_same(load(tmp_path / "again.ckpt"), whole)
    assert sorted(os.listdir(tmp_path / "new")) == ["file.ckpt"]


def test_nothing_is_replaced_or_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    ShardedCheckpointIO().save_checkpoint(contents(), path)
    with pytest.raises(MisconfigurationException, match="is there already"):
        convert(path, path)
    with pytest.raises(MisconfigurationException, match="Expected local paths.*'gs://bucket/b.ckpt'"):
        convert(path, "gs://bucket/b.ckpt")
    with pytest.raises(CheckpointNotFoundError, match=r"Did you mean 'a\.ckpt'"):
        convert(tmp_path / "b.ckpt", tmp_path / "c.ckpt")
    with pytest.warns(UserWarning, match="Opaque"):
        ShardedCheckpointIO().save_checkpoint({**contents(), "mine": Opaque()}, tmp_path / "odd.ckpt")
    with pytest.raises(CheckpointFormatError, match="Opaque"):
        convert(tmp_path / "odd.ckpt", tmp_path / "c.ckpt")
    (path / "contents.ckpt").unlink()
    with pytest.raises(CheckpointFormatError, match="was not completed"):
        convert(path, tmp_path / "c.ckpt")
    assert sorted(os.listdir(tmp_path)) == ["a.ckpt", "odd.ckpt"]


MEASURE = """
import json, sys, threading, time
import jax
jax.config.update("jax_platforms", "cpu")
import torch
from systolic.checkpoint import ShardedCheckpointIO, convert

def anonymous():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("RssAnon"))

state = {str(i): torch.full((4096, 4096), float(i)) for i in range(12)}
ShardedCheckpointIO().save_checkpoint({"state_dict": state}, sys.argv[1] + "/a.ckpt")
del state
convert(sys.argv[1] + "/a.ckpt", sys.argv[1] + "/warm.ckpt")
before, peak, over = anonymous(), 0, False

def watch():
    global peak
    while not over:
        peak = max(peak, anonymous())
        time.sleep(0.001)

watcher = threading.Thread(target=watch)
watcher.start()
convert(sys.argv[1] + "/a.ckpt", sys.argv[1] + "/b.ckpt")
over = True
watcher.join()
print(json.dumps({"grown": peak - before}))
"""


@pytest.mark.slow
def test_memory_holds_some_arrays_at_a_time(tmp_path: Path) -> None:
    """Bytes of a process that no file stands for; the state is three times what is read at once."""
    done = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["grown"] < 1.5 * _conversion._AT_ONCE
