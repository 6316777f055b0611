"""Checkpoints as directories: the content of the file, whole at every moment, and nothing large fetched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from systolic.checkpoint import (
    AsyncCheckpointIO,
    CheckpointFormatError,
    CheckpointNotFoundError,
    ShardedCheckpointIO,
    TorchCheckpointIO,
    atomic_save,
    copy_atomically,
    describe,
    link_atomically,
    load,
    remove,
    snapshot,
)
from systolic.checkpoint._storage import exists, is_whole, modified
from systolic.exceptions import MisconfigurationException
from systolic.runtime import Buffer, DeviceTensor, cells_of, to_jax_array

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool,
    torch.complex64,
]  # fmt: skip


def on_devices(values: torch.Tensor, spec: PartitionSpec = PartitionSpec("x")) -> DeviceTensor:  # noqa: B008
    mesh = Mesh(np.array(jax.devices()[:8]), ("x",))
    with jax.enable_x64(True):
        array = jax.device_put(to_jax_array(values), NamedSharding(mesh, spec))
    return DeviceTensor(cells_of(Buffer(array), [(values.shape, values.dtype)])[0])


def contents(step: int = 0) -> dict[str, Any]:
    """Large and small tensors of every kind, on devices and not, tied, in all containers."""
    weights = {str(dtype)[6:]: on_devices(torch.arange(8 * 512).reshape(8, 512).to(dtype)) for dtype in DTYPES}
    tied = on_devices(torch.full((64, 64), float(step)), PartitionSpec())
    on_host = torch.randn(300, 100)
    return {
        "state_dict": OrderedDict(weights, tied=tied, a=tied, small=on_devices(torch.arange(8.0)), host=on_host),
        "global_step": step,
        "optimizer_states": [{"state": {0: {"exp_avg": on_host.T, "step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]}],
        "callbacks": {"Odd{'key': 1}/..": (on_devices(torch.ones(8, 512)), "text", None)},
        "without values": torch.empty(70000, device="meta"),
    }


def assert_same(found: object, expected: object) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list | tuple):
        assert isinstance(found, list | tuple)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, torch.Tensor):
        assert isinstance(found, torch.Tensor)
        assert (found.dtype, found.shape, found.device) == (expected.dtype, expected.shape, expected.device)
        if not expected.is_meta:
            assert found.reshape(-1).view(torch.uint8).tolist() == expected.reshape(-1).view(torch.uint8).tolist()
    else:
        assert found == expected


def test_a_directory_holds_what_the_file_holds(tmp_path: Path) -> None:
    saved = contents(5)
    ShardedCheckpointIO().save_checkpoint(saved, tmp_path / "new" / "a.ckpt")
    TorchCheckpointIO().save_checkpoint(snapshot(saved), tmp_path / "a.ckpt")
    whole = load(tmp_path / "a.ckpt")
    for read in (load, TorchCheckpointIO().load_checkpoint, ShardedCheckpointIO().load_checkpoint):
        found = read(tmp_path / "new" / "a.ckpt")
        assert_same(found, whole)
        assert found["state_dict"]["tied"] is found["state_dict"]["a"]
    assert_same(ShardedCheckpointIO().load_checkpoint(tmp_path / "a.ckpt"), whole)
    names = os.listdir(tmp_path / "new" / "a.ckpt")
    assert sorted(name[:7] for name in names) == ["arrays-", "content"]
    assert (tmp_path / "new" / "a.ckpt" / "contents.ckpt").stat().st_size < 30_000
    found, expected = describe(tmp_path / "new" / "a.ckpt"), describe(tmp_path / "a.ckpt")
    assert found.parts == expected.parts
    assert found.tensor_bytes == expected.tensor_bytes
    assert found.bytes == sum(file.stat().st_size for file in (tmp_path / "new").rglob("*") if file.is_file())


def test_a_tensor_that_was_written_on_the_host_is_saved_as_it_is_now(tmp_path: Path) -> None:
    weight = on_devices(torch.ones(512, 512))
    weight.data[3] = 7.0
    ShardedCheckpointIO().save_checkpoint({"state_dict": {"w": weight}}, tmp_path / "a.ckpt")
    assert load(tmp_path / "a.ckpt")["state_dict"]["w"][:, 0].unique(return_counts=True)[1].tolist() == [511, 1]


MEASURE = """
import json, sys
import jax
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_platforms", "cpu")
import numpy as np, torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from systolic.checkpoint import ShardedCheckpointIO, TorchCheckpointIO, snapshot
from systolic.runtime import Buffer, DeviceTensor, cells_of

def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))

split = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
make = jax.jit(lambda i: jax.numpy.full((1024, 4096), i, "float32"), out_shardings=split)
state = {str(i): DeviceTensor(cells_of(Buffer(make(i).block_until_ready()), [(torch.Size((1024, 4096)), torch.float32)])[0]) for i in range(24)}
small = {"state_dict": {"w": DeviceTensor(cells_of(Buffer(jax.device_put(np.ones((8, 512), "float32"), split)), [(torch.Size((8, 512)), torch.float32)])[0])}}
plain, shards = TorchCheckpointIO(), ShardedCheckpointIO()
shards.save_checkpoint(small, sys.argv[1] + "/warm")  # imports
found = {}
for name in ("shards", "plain"):
    before = status("RssAnon")
    rest = status("VmRSS") - before
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts here
    if name == "shards":
        shards.save_checkpoint({"state_dict": state}, sys.argv[1] + "/a.ckpt")
    else:
        plain.save_checkpoint(snapshot({"state_dict": state}), sys.argv[1] + "/b.ckpt")
    found[name] = status("VmHWM") - before - rest
print(json.dumps(found))
"""


@pytest.mark.tables
def test_saving_does_not_gather_the_state_on_the_host(tmp_path: Path) -> None:
    """Bytes by which a process's memory grows at most: the file takes a copy of the state, the directory does not."""
    done = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    state = 24 * 1024 * 4096 * 4
    assert found["plain"] > 0.9 * state
    assert found["shards"] < 0.2 * state


SAVE_FOREVER = """
import itertools, sys, torch
from systolic.checkpoint import ShardedCheckpointIO
io = ShardedCheckpointIO()
for step in itertools.count():
    io.save_checkpoint({"state_dict": {f"p{i}": torch.full((64, 1024), float(step)) for i in range(20)}, "step": step}, sys.argv[1])
"""


@pytest.mark.parametrize(
    "after", [pytest.param(after, marks=pytest.mark.tables if after else pytest.mark.slow) for after in (0.0, 0.17, 0.31)]
)
def test_a_kill_at_any_instant_leaves_a_whole_checkpoint(after: float, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    with subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, str(path)]) as process:
        try:
            while not exists(path):
                assert process.poll() is None
                time.sleep(0.01)
            time.sleep(after)
        finally:
            process.send_signal(signal.SIGKILL)
    found = load(path)
    assert {float(value.mean()) for value in found["state_dict"].values()} == {float(found["step"])}
    ShardedCheckpointIO().save_checkpoint({"state_dict": {"w": torch.ones(70000)}}, path)
    assert len(os.listdir(path)) == 2, "what the killed process left is removed"


def test_a_directory_that_was_not_completed(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    ShardedCheckpointIO().save_checkpoint(contents(), path)
    assert exists(path)
    assert is_whole(path)
    (path / "contents.ckpt").unlink()
    assert not exists(path)
    assert not is_whole(path)
    for read in (load, describe):
        with pytest.raises(CheckpointFormatError, match="was not completed: it has no 'contents.ckpt', which is written last"):
            read(path)
    shutil.rmtree(path)
    path.mkdir()
    assert not exists(path), "killed before anything was written"
    assert not is_whole(path)
    with pytest.raises(CheckpointNotFoundError, match="is a directory"):
        load(path)
    ShardedCheckpointIO().save_checkpoint(contents(3), path)
    assert load(path)["global_step"] == 3
    assert len(os.listdir(path)) == 2


@pytest.mark.parametrize("how", ["flipped", "cut off", "gone", "contents"])
def test_damage_is_found(how: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    ShardedCheckpointIO().save_checkpoint(contents(), path)
    data = max((file for file in path.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
    if how == "contents":
        data = path / "contents.ckpt"
    whole = data.read_bytes()
    middle = len(whole) // 2
    if how == "gone":
        data.unlink()
    else:
        data.write_bytes(whole[:middle] + (b"" if how == "cut off" else bytes([whole[middle] ^ 1])) + whole[middle + 1 :])
    assert not is_whole(path)
    for read in (load, describe):
        with pytest.raises(CheckpointFormatError, match="a.ckpt' is damaged.*checksum does not fit"):
            read(path)


def test_an_index_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    ShardedCheckpointIO().save_checkpoint(contents(), path)
    rest = torch.load(path / "contents.ckpt", weights_only=True)
    good = rest["systolic_sharded"]
    for wrong in (
        None,
        {**good, "format": 2},
        {**good, "arrays": "../../etc"},
        {**good, "arrays": None},
        {**good, "files": {"../../../etc/passwd": (1, 2)}},
        {**good, "files": {"/etc/passwd": (1, 2)}},
        {**good, "gaps": good["gaps"][1:]},
        {**good, "gaps": ["unknown", *good["gaps"][1:]]},
        {**good, "gaps": [*good["gaps"][1:], good["gaps"][0]]},
    ):
        torch.save({**rest, "systolic_sharded": wrong}, path / "contents.ckpt")
        with pytest.raises(CheckpointFormatError):
            load(path)


class Opaque:
    pass


def test_only_plain_values_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    with pytest.warns(UserWarning, match=r"test_sharded\.Opaque.*weights_only=True"):
        ShardedCheckpointIO().save_checkpoint({**contents(), "mine": Opaque()}, path)
    with pytest.raises(CheckpointFormatError, match=r"test_sharded\.Opaque.*weights_only=False"):
        load(path)
    assert isinstance(load(path, weights_only=False)["mine"], Opaque)


def test_the_file_of_a_directory_is_no_checkpoint(tmp_path: Path) -> None:
    ShardedCheckpointIO().save_checkpoint(contents(), tmp_path / "a.ckpt")
    with pytest.raises(CheckpointFormatError, match="Pass the path of the directory"):
        load(tmp_path / "a.ckpt" / "contents.ckpt")
    with pytest.raises(TypeError, match="A checkpoint is a dict"):
        ShardedCheckpointIO().save_checkpoint([1], tmp_path / "b.ckpt")  # type: ignore[arg-type]


def test_tensors_go_where_they_are_asked_to(tmp_path: Path) -> None:
    ShardedCheckpointIO().save_checkpoint(contents(), tmp_path / "a.ckpt")
    for place in ("meta", torch.device("meta"), {"cpu": "meta"}):
        assert load(tmp_path / "a.ckpt", place)["state_dict"]["float32"].is_meta
    asked = []
    found = load(tmp_path / "a.ckpt", lambda storage, where: asked.append(where) or storage)
    torch.testing.assert_close(found["state_dict"]["float32"], torch.arange(4096.0).reshape(8, 512))
    assert set(asked) == {"cpu"}


def test_files_and_directories_take_each_others_places(tmp_path: Path) -> None:
    path, io = tmp_path / "last.ckpt", ShardedCheckpointIO()
    atomic_save({"state_dict": {}, "step": 1}, path)
    io.save_checkpoint({"state_dict": {"w": torch.ones(70000)}, "step": 2}, path)
    assert path.is_dir()
    assert load(path)["step"] == 2
    atomic_save({"state_dict": {}, "step": 3}, path)
    assert path.is_file()
    assert load(path)["step"] == 3
    io.save_checkpoint({"state_dict": {"w": torch.ones(70000)}, "step": 4}, tmp_path / "b.ckpt")
    link_atomically(tmp_path / "b.ckpt", path)
    assert load(path)["step"] == 4
    io.save_checkpoint({"state_dict": {"w": torch.ones(70000)}, "step": 5}, path)
    assert not path.is_symlink()
    assert (load(path)["step"], load(tmp_path / "b.ckpt")["step"]) == (5, 4)
    atomic_save({"state_dict": {}, "step": 6}, path)
    copy_atomically(tmp_path / "b.ckpt", path)
    assert path.is_dir()
    assert load(path)["step"] == 4
    assert sorted(os.listdir(tmp_path)) == ["b.ckpt", "last.ckpt"]


def test_copies_and_removals(tmp_path: Path) -> None:
    io = ShardedCheckpointIO()
    for step in (1, 2):
        io.save_checkpoint(contents(step), tmp_path / f"{step}.ckpt")
    for step in (1, 2, 2):
        io.copy_checkpoint(tmp_path / f"{step}.ckpt", tmp_path / "last.ckpt")
        assert_same(load(tmp_path / "last.ckpt")["state_dict"], load(tmp_path / f"{step}.ckpt")["state_dict"])
        assert len(os.listdir(tmp_path / "last.ckpt")) == 2
    io.remove_checkpoint(tmp_path / "2.ckpt")
    io.remove_checkpoint(tmp_path / "2.ckpt")
    assert load(tmp_path / "last.ckpt")["global_step"] == 2
    assert io.names_in(tmp_path) == ["1.ckpt", "last.ckpt"]
    assert modified(tmp_path / "last.ckpt") >= modified(tmp_path / "1.ckpt")
    io.link_checkpoint(tmp_path / "1.ckpt", tmp_path / "last.ckpt")
    remove(tmp_path / "last.ckpt")
    assert os.listdir(tmp_path) == ["1.ckpt"]


def test_whoever_may_read_a_file_may_read_a_directory(tmp_path: Path) -> None:
    ShardedCheckpointIO().save_checkpoint(contents(), tmp_path / "a.ckpt")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "a.ckpt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_it_cannot_do_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    io = ShardedCheckpointIO()
    with pytest.raises(MisconfigurationException, match="Expected a local path.*'gs://bucket/a.ckpt'"):
        io.save_checkpoint(contents(), "gs://bucket/a.ckpt")
    with pytest.raises(MisconfigurationException, match="no storage_options"):
        io.save_checkpoint(contents(), tmp_path / "a.ckpt", {"token": "x"})
    with pytest.raises(MisconfigurationException, match=r"AsyncCheckpointIO\(ShardedCheckpointIO\(\)\).*Use it without"):
        AsyncCheckpointIO(io)
    io.save_checkpoint(contents(), tmp_path / "a.ckpt")
    monkeypatch.setitem(sys.modules, "orbax", None)
    for call in (ShardedCheckpointIO, lambda: load(tmp_path / "a.ckpt")):
        with pytest.raises(MisconfigurationException, match=r'pip install "systolic\[orbax\]"'):
            call()
    assert describe(tmp_path / "a.ckpt").step == 0, "what is in it is shown without orbax"


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("mount") is None, reason="only root can mount a small file system")
def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    small, io = tmp_path / "small", ShardedCheckpointIO()
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("this container cannot mount")
    try:
        io.save_checkpoint({"state_dict": {"w": torch.ones(100_000)}, "global_step": 1}, small / "a.ckpt")
        with pytest.raises(OSError, match="No space left on device"):
            io.save_checkpoint({"state_dict": {"w": torch.randn(5_000_000)}}, small / "a.ckpt")
        assert load(small / "a.ckpt")["global_step"] == 1
        assert len(os.listdir(small / "a.ckpt")) == 2
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.tables
def test_orbax_is_imported_when_it_is_needed(tmp_path: Path) -> None:
    code = (
        "import sys, torch, systolic\nfrom systolic.plugins import ShardedCheckpointIO\nio = ShardedCheckpointIO()\n"
        "assert not any(n.startswith(('orbax.', 'tensorstore')) for n in sys.modules)\n"
        "io.save_checkpoint({'state_dict': {'w': torch.ones(99999)}}, sys.argv[1])\nassert 'orbax.checkpoint' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.ckpt")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
