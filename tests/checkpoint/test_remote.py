"""Checkpoints on other file systems: whole at every moment, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from checkpoint import object_store
from torch import nn

from systolic.checkpoint import (
    CheckpointFormatError,
    CheckpointNotFoundError,
    atomic_save,
    copy_atomically,
    is_inside,
    link_atomically,
    load,
    location,
    remove,
)
from systolic.exceptions import MisconfigurationException
from systolic.plugins import AsyncCheckpointIO, TorchCheckpointIO

object_store.register()


@pytest.fixture(params=["memory", "dir", "objects"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The URL of a directory, and the options for it."""
    if request.param == "dir":
        yield "dir://run", {"path": str(tmp_path), "target_protocol": "file"}
    elif request.param == "objects":
        yield "objects://bucket/run", {"root": str(tmp_path), "password": "sesame"}
    else:
        yield "memory://run", {}
        fsspec.filesystem("memory").store.clear()


Storage = tuple[str, dict[str, Any]]


def checkpoint(step: int = 0) -> dict[str, Any]:
    return {"state_dict": nn.Linear(3, 2).state_dict(), "global_step": step, "hyper_parameters": {"lr": 0.1, "layers": [1, 2]}}


# defect 15
def test_round_trip_leaves_no_other_object(storage: Storage) -> None:
    url, options = storage
    io = TorchCheckpointIO(storage_options=options)
    saved = checkpoint(7)
    assert io.names_in(url) == []
    assert not io.exists(f"{url}/a.ckpt")
    io.save_checkpoint(saved, f"{url}/a.ckpt")
    read = io.load_checkpoint(f"{url}/a.ckpt")
    assert read["global_step"] == 7
    torch.testing.assert_close(read["state_dict"], saved["state_dict"], rtol=0, atol=0)
    assert io.names_in(url) == ["a.ckpt"]
    assert io.exists(f"{url}/a.ckpt")


def test_the_bytes_are_those_of_a_local_file(storage: Storage, tmp_path: Path) -> None:
    url, options = storage
    saved = checkpoint()
    atomic_save(saved, f"{url}/a.ckpt", options)
    atomic_save(saved, tmp_path / "local" / "a.ckpt")
    with fsspec.open(f"{url}/a.ckpt", "rb", **options) as file:
        assert file.read() == (tmp_path / "local" / "a.ckpt").read_bytes()


def test_copies_and_links_are_objects_of_their_own(storage: Storage, tmp_path: Path) -> None:
    url, options = storage
    atomic_save(checkpoint(1), f"{url}/a.ckpt", options)
    copy_atomically(f"{url}/a.ckpt", f"{url}/b.ckpt", options)
    link_atomically(f"{url}/a.ckpt", f"{url}/last.ckpt", options)
    atomic_save(checkpoint(2), f"{url}/a.ckpt", options)
    assert [load(f"{url}/{name}.ckpt", storage_options=options)["global_step"] for name in ("a", "b", "last")] == [2, 1, 1]
    remove(f"{url}/a.ckpt", options)
    remove(f"{url}/a.ckpt", options)
    assert TorchCheckpointIO(options).names_in(url) == ["b.ckpt", "last.ckpt"]


def test_copies_between_file_systems(tmp_path: Path) -> None:
    atomic_save(checkpoint(3), tmp_path / "a.ckpt")
    copy_atomically(tmp_path / "a.ckpt", "memory://copies/b.ckpt")
    copy_atomically("memory://copies/b.ckpt", tmp_path / "new" / "c.ckpt")
    assert load("memory://copies/b.ckpt")["global_step"] == load(tmp_path / "new" / "c.ckpt")["global_step"] == 3
    assert TorchCheckpointIO().names_in("memory://copies") == ["b.ckpt"]
    remove("memory://copies")
    assert TorchCheckpointIO().names_in("memory://copies") == []


# defect 15
def test_a_failed_save_keeps_the_old_object_and_leaves_no_half_one(storage: Storage) -> None:
    """The error comes when megabytes have been uploaded already."""
    url, options = storage
    atomic_save(checkpoint(1), f"{url}/a.ckpt", options)

    class Breaks:
        def __reduce__(self) -> Any:
            raise RuntimeError("in the middle")

    new = {**checkpoint(2), "large": [torch.zeros(2**21), Breaks()]}
    for name in ("a", "new"):
        with pytest.raises(RuntimeError, match="in the middle"):
            atomic_save(new, f"{url}/{name}.ckpt", options)
    assert load(f"{url}/a.ckpt", storage_options=options)["global_step"] == 1
    fs, path = fsspec.url_to_fs(url, **options)
    assert [name.rsplit("/")[-1] for name in fs.ls(path, detail=False)] == ["a.ckpt"]


def test_a_full_disk_in_the_middle_of_an_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"root": str(tmp_path), "password": "sesame"}
    parts = []

    def fails(self: Any, final: bool = False) -> bool:
        parts.append(final)
        if len(parts) > 1:
            raise OSError(28, "No space left on device")
        return True

    monkeypatch.setattr(object_store.Upload, "_upload_chunk", fails)
    with pytest.raises(OSError, match="No space left"):
        atomic_save({"state_dict": {"x": torch.zeros(2**23)}}, "objects://bucket/a.ckpt", options)
    assert list(tmp_path.iterdir()) == []


def test_objects_that_weights_only_refuses_are_named(storage: Storage) -> None:
    url, options = storage
    with pytest.warns(UserWarning, match=r"a\.ckpt' holds more than .*test_remote\.Opaque.*weights_only=True"):
        atomic_save({**checkpoint(), "hyper_parameters": {"o": Opaque()}}, f"{url}/a.ckpt", options)
    with pytest.raises(CheckpointFormatError, match=r"test_remote\.Opaque.*weights_only=False"):
        load(f"{url}/a.ckpt", storage_options=options)
    assert isinstance(load(f"{url}/a.ckpt", weights_only=False, storage_options=options)["hyper_parameters"]["o"], Opaque)


class Opaque:
    pass


def test_a_missing_object_is_named_with_its_neighbours(storage: Storage) -> None:
    url, options = storage
    atomic_save(checkpoint(), f"{url}/epoch=1.ckpt", options)
    with pytest.raises(CheckpointNotFoundError, match="Did you mean 'epoch=1.ckpt'"):
        load(f"{url}/epoch=7.ckpt", storage_options=options)
    with pytest.raises(FileNotFoundError, match=r"is a directory.*'epoch=1\.ckpt'"):
        load(url, storage_options=options)
    with pytest.raises(CheckpointNotFoundError, match="Checkpoint file not found"):
        load(f"{url}/nowhere/a.ckpt", storage_options=options)


def test_a_damaged_object(storage: Storage) -> None:
    url, options = storage
    atomic_save(checkpoint(), f"{url}/a.ckpt", options)
    with fsspec.open(f"{url}/a.ckpt", "wb", **options) as file:
        file.write(b"hello")
    with pytest.raises(CheckpointFormatError, match="5 bytes.*is not a checkpoint, or was cut off"):
        load(f"{url}/a.ckpt", storage_options=options)


def test_what_another_thread_wrote_is_seen(storage: Storage) -> None:
    """File systems remember listings; one that was seen before a save must not hide what was saved."""
    url, options = storage
    io = TorchCheckpointIO(options)
    io.save_checkpoint(checkpoint(1), f"{url}/a.ckpt")
    assert io.names_in(url) == ["a.ckpt"]
    later = AsyncCheckpointIO(io)
    later.save_checkpoint(checkpoint(2), f"{url}/b.ckpt")
    later.teardown()
    assert io.exists(f"{url}/b.ckpt")
    assert io.load_checkpoint(f"{url}/b.ckpt")["global_step"] == 2


# defect 15
def test_storage_options_of_local_files(tmp_path: Path) -> None:
    """They are taken, and a key that has no meaning there is an error."""
    atomic_save(checkpoint(1), f"file://{tmp_path}/a/b.ckpt", {"auto_mkdir": True})
    assert load(f"file://{tmp_path}/a/b.ckpt")["global_step"] == load(tmp_path / "a" / "b.ckpt")["global_step"] == 1
    with pytest.raises(FileNotFoundError):
        atomic_save(checkpoint(1), tmp_path / "new" / "b.ckpt", {"auto_mkdir": False})
    with pytest.raises(MisconfigurationException, match="'token', which local files do not have.*Expected one of 'auto_mkdir'"):
        TorchCheckpointIO().save_checkpoint(checkpoint(), tmp_path / "a.ckpt", {"token": "x"})
    with pytest.raises(MisconfigurationException, match="Did you mean 'auto_mkdir'"):
        TorchCheckpointIO().save_checkpoint(checkpoint(), tmp_path / "a.ckpt", {"auto-mkdirs": True})
    TorchCheckpointIO({"token": "of the cloud"}).save_checkpoint(checkpoint(), tmp_path / "a.ckpt")


def test_file_systems_that_do_not_work_are_explained(tmp_path: Path) -> None:
    with pytest.raises(MisconfigurationException, match="fsspec knows no file system 'gcloud'.*one of .*'?gs"):
        load("gcloud://bucket/a.ckpt")
    with pytest.raises(MisconfigurationException, match="Did you mean 'memory'"):
        atomic_save(checkpoint(), "memry://a.ckpt")
    with pytest.raises(MisconfigurationException, match="a package for this kind of storage is not installed. .*gcsfs"):
        atomic_save(checkpoint(), "gs://bucket/a.ckpt")
    with pytest.raises(
        MisconfigurationException, match=r"'objects' does not work .* have \['password', 'root'\]: wrong password"
    ):
        atomic_save(checkpoint(), "objects://bucket/a.ckpt", {"root": str(tmp_path), "password": "hunter2"})
    with pytest.raises(TypeError, match="A checkpoint is a dict"):
        atomic_save([1], "memory://a.ckpt")  # type: ignore[arg-type]


def test_the_warning_about_plain_values_reads_no_tensors(tmp_path: Path) -> None:
    fs = object_store.ObjectStore(str(tmp_path), "sesame")
    atomic_save({"state_dict": {"x": torch.zeros(2**25)}}, "objects://b/a.ckpt", {"root": str(tmp_path), "password": "sesame"})
    from systolic.checkpoint._contents import warn_if_not_plain

    with fs.open("b/a.ckpt") as file:
        warn_if_not_plain(file, "a")
    assert fs.bytes_read < 2**24, "of 128 MB"


def test_spellings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert location("gs://b/c/") == "gs://b/c"
    assert location("file:///tmp/x") == "/tmp/x"
    assert location("a/../b") == str(tmp_path / "b")
    assert is_inside("gs://b/run/x.ckpt", "gs://b/run/")
    assert not is_inside("gs://b/runs/x.ckpt", "gs://b/run")
    assert is_inside("b/x.ckpt", tmp_path)
    assert not is_inside("gs://b/x.ckpt", tmp_path)
