"""Checkpoint files: whole at every moment, and errors that say what to do."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import pytest
import torch
from torch import nn
from trainer import three_ways

import systolic as L
from systolic.checkpoint import (
    CheckpointFormatError,
    CheckpointNotFoundError,
    atomic_save,
    copy_atomically,
    link_atomically,
    load,
    remove,
)
from systolic.exceptions import MisconfigurationException


def checkpoint(step: int = 0) -> dict[str, Any]:
    model = nn.Linear(3, 2)
    return {"state_dict": model.state_dict(), "global_step": step, "hyper_parameters": {"lr": 0.1, "layers": [1, 2]}}


class Opaque:
    pass


def test_round_trip_creates_directories_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.ckpt"
    saved = checkpoint(7)
    atomic_save(saved, path)
    read = load(path)
    assert read["global_step"] == 7
    assert read["hyper_parameters"] == {"lr": 0.1, "layers": [1, 2]}
    torch.testing.assert_close(read["state_dict"], saved["state_dict"], rtol=0, atol=0)
    assert torch.load(path, weights_only=True).keys() == saved.keys()
    assert os.listdir(path.parent) == ["c.ckpt"]


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    saved = checkpoint()
    atomic_save(saved, tmp_path / "first.ckpt")
    atomic_save(saved, tmp_path / "another-name.ckpt")
    assert (tmp_path / "first.ckpt").read_bytes() == (tmp_path / "another-name.ckpt").read_bytes()


def test_file_mode_is_that_of_an_ordinary_file(tmp_path: Path) -> None:
    atomic_save(checkpoint(), tmp_path / "a.ckpt")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "a.ckpt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_failed_save_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    atomic_save(checkpoint(1), path)
    with pytest.raises(AttributeError, match="Can't pickle local object|Can't get local object"):
        atomic_save({**checkpoint(2), "f": lambda: None}, path)
    assert load(path)["global_step"] == 1
    assert os.listdir(tmp_path) == ["a.ckpt"]


_SAVE_FOREVER = """
import itertools, sys, torch
from systolic.checkpoint import atomic_save
state = {f"p{i}": torch.randn(64, 1024) for i in range(20)}
for step in itertools.count():
    atomic_save({"state_dict": state, "step": step}, sys.argv[1])
"""


@pytest.mark.tables
def test_a_kill_at_any_instant_leaves_a_whole_file(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}" / "a.ckpt" for i in range(3)]
    processes = [subprocess.Popen([sys.executable, "-c", _SAVE_FOREVER, str(path)]) for path in paths]
    for i, (path, process) in enumerate(zip(paths, processes, strict=True)):
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.1 + 0.037 * i)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert len(load(path)["state_dict"]) == 20
        names = [name for name in os.listdir(path.parent) if not name.endswith(".systolic-tmp")]
        assert names == ["a.ckpt"]


def test_what_a_killed_process_left_is_removed_later(tmp_path: Path) -> None:
    old, young = tmp_path / ".a.ckpt.0.systolic-tmp", tmp_path / ".a.ckpt.1.systolic-tmp"
    for left in (old, young):
        left.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    atomic_save(checkpoint(), tmp_path / "a.ckpt")
    assert sorted(os.listdir(tmp_path)) == [young.name, "a.ckpt"]


_HALF_SAVED = """
import sys
from systolic.checkpoint import _files
class Slow:
    def __reduce__(self):
        print("writing", flush=True)
        sys.stdin.read()
_files.save({"state_dict": {}, "slow": Slow()}, sys.argv[1])
"""


@pytest.mark.tables
def test_what_a_killed_save_left_is_removed_by_the_next_one_and_a_live_one_stays(tmp_path: Path) -> None:
    def half_saved(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _HALF_SAVED, str(tmp_path / name)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        return process

    killed, live = half_saved("killed.ckpt"), half_saved("live.ckpt")
    killed.kill()
    killed.communicate()
    for left in tmp_path.iterdir():  # as if some seconds had passed
        os.utime(left, (time.time() - 60,) * 2)
    atomic_save(checkpoint(), tmp_path / "a.ckpt")
    left = sorted(name.partition(".ckpt")[0] for name in os.listdir(tmp_path))
    live.kill()
    live.communicate()
    assert left == [".live", "a"]


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("mount") is None, reason="only root can mount a small file system")
def test_a_full_disk_is_told_as_such_with_its_path(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("this container cannot mount")
    try:
        atomic_save(checkpoint(1), small / "a.ckpt")
        with pytest.raises(OSError, match="cannot be saved: No space left on device. Make room.*b.ckpt") as caught:
            atomic_save({"state_dict": {"x": torch.ones(500_000)}}, small / "b.ckpt")
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(small / "b.ckpt")
        assert os.listdir(small) == ["a.ckpt"]
        assert load(small / "a.ckpt")["global_step"] == 1
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_write_that_fails_is_told_with_the_checkpoints_path(tmp_path: Path) -> None:
    """A limit on the size of files instead of a full disk, which needs no rights."""
    code = (
        "import resource, signal, sys, torch; from systolic.checkpoint import atomic_save\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n    atomic_save({'state_dict': {'x': torch.ones(500_000)}}, sys.argv[1])\n"
        "except OSError as error:\n    print(type(error).__name__, error)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.ckpt")], capture_output=True, text=True, timeout=120)
    assert "OSError [Errno 27] The checkpoint cannot be saved: File too large" in run.stdout, run.stderr
    assert "a.ckpt" in run.stdout
    assert os.listdir(tmp_path) == []


def test_the_way_on_that_is_told_exists_in_that_call(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    model = three_ways.regression(L.LightningModule)()
    trainer = three_ways.quiet_trainer(compile=False)
    trainer.fit(model, three_ways.loader())
    trainer.save_checkpoint(path)
    torch.save({**torch.load(path), "mine": Opaque()}, path)
    evaluated = three_ways.regression(
        L.LightningModule, validation_step=lambda self, batch: None, test_step=lambda self, b: None
    )()
    options = {"ckpt_path": path}
    for call in (
        lambda **weights: three_ways.quiet_trainer(compile=False, max_epochs=2).fit(
            model, three_ways.loader(), **options, **weights
        ),
        lambda **weights: trainer.validate(evaluated, three_ways.loader(), verbose=False, **options, **weights),
        lambda **weights: trainer.test(evaluated, three_ways.loader(), verbose=False, **options, **weights),
        lambda **weights: trainer.predict(model, [torch.ones(2, 4)], **options, **weights),
        lambda **weights: type(model).load_from_checkpoint(path, **weights),
    ):
        with pytest.raises(CheckpointFormatError, match=r"test_files\.Opaque.*weights_only=False"):
            call()
        call(weights_only=False)


def test_hyperparameters_of_foreign_files_instantiate_nothing(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')")
    path = tmp_path / "a.ckpt"

    class Takes(three_ways.regression(L.LightningModule)):
        def __init__(self, lr: float = 0.1, **others: Any) -> None:
            super().__init__()
            self.lr, self.others = lr, others

    planted = {"lr": 0.5, "_instantiator": "planted.build", "_target_": "planted.build", "class_path": "planted.Build"}
    torch.save({"state_dict": Takes().state_dict(), "hyper_parameters": planted}, path)
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(ValueError, match="another function could run any code"):
            Takes.load_from_checkpoint(path)
        del planted["_instantiator"]
        torch.save({"state_dict": Takes().state_dict(), "hyper_parameters": planted}, path)
        found = Takes.load_from_checkpoint(path)
    finally:
        sys.path.remove(str(tmp_path))
    assert "planted" not in sys.modules
    assert found.lr == 0.5
    assert all(isinstance(value, str) for value in found.others.values())
    (tmp_path / "hparams.yaml").write_text("lr: !!python/object/apply:os.system ['touch ran']\n")
    with pytest.raises(Exception, match="could not determine a constructor"):
        Takes.load_from_checkpoint(path, hparams_file=tmp_path / "hparams.yaml")
    assert not Path("ran").exists()


def test_objects_that_weights_only_refuses_are_named_when_saving_and_when_loading(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    with pytest.warns(UserWarning, match=r"test_files\.Opaque.*weights_only=True"):
        atomic_save({**checkpoint(), "hyper_parameters": {"o": Opaque()}}, path)
    with pytest.raises(CheckpointFormatError, match=r"test_files\.Opaque.*weights_only=False"):
        load(path)
    assert isinstance(load(path, weights_only=False)["hyper_parameters"]["o"], Opaque)


@pytest.mark.filterwarnings("error")
def test_every_save_is_looked_at_for_objects(tmp_path: Path) -> None:
    """Only the first plain one is read again: later ones that name nothing new are known to be plain."""
    atomic_save(checkpoint(), tmp_path / "a.ckpt")
    for when in range(2):
        with pytest.warns(UserWarning, match="PurePosixPath"):
            atomic_save(checkpoint() | {"extra": {"when": when, "path": PurePosixPath("x")}}, tmp_path / "a.ckpt")
        atomic_save(checkpoint() | {"extra": {"cwhen\nnow\n": when}}, tmp_path / "a.ckpt")  # text that looks like a name
        atomic_save(checkpoint() | {"extra": torch.device("cpu")}, tmp_path / "a.ckpt")


def test_a_class_that_was_allowed_for_a_while_is_told_afterwards(tmp_path: Path) -> None:
    holds = {**checkpoint(), "hyper_parameters": {"o": PureWindowsPath("x")}}
    with torch.serialization.safe_globals([PureWindowsPath]):
        atomic_save(holds, tmp_path / "a.ckpt")
    with pytest.warns(UserWarning, match="PureWindowsPath"):
        atomic_save(holds, tmp_path / "a.ckpt")


def test_a_missing_file_is_named_with_its_neighbours(tmp_path: Path) -> None:
    atomic_save(checkpoint(), tmp_path / "epoch=1.ckpt")
    with pytest.raises(CheckpointNotFoundError, match="Did you mean 'epoch=1.ckpt'"):
        load(tmp_path / "epoch=7.ckpt")
    with pytest.raises(FileNotFoundError, match=r"is a directory.*'epoch=1\.ckpt'"):
        load(tmp_path)
    with pytest.raises(MisconfigurationException, match="there is no directory"):
        load(tmp_path / "nowhere" / "a.ckpt")


def test_a_file_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    atomic_save(checkpoint(), path)
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointFormatError, match=f"{size} bytes.*is not a checkpoint, or was cut off"):
            load(path)


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    atomic_save(checkpoint(), path)
    damaged = bytearray(path.read_bytes())
    damaged[40:140] = bytes(100)
    path.write_bytes(damaged)
    with pytest.raises(CheckpointFormatError, match=r"a\.ckpt"):
        load(path)


def test_files_that_hold_something_else(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    path.write_text("hello")
    with pytest.raises(CheckpointFormatError, match="not a checkpoint"):
        load(path)
    torch.save(torch.ones(3), path)
    with pytest.raises(CheckpointFormatError, match="an object of type Tensor"):
        load(path)
    torch.save(nn.Linear(1, 1).state_dict(), path)
    with pytest.raises(CheckpointFormatError, match=r"only 'weight', 'bias'.*model\.load_state_dict"):
        load(path)


def test_only_a_dict_can_be_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="A checkpoint is a dict, received list"):
        atomic_save([1], tmp_path / "a.ckpt")  # type: ignore[arg-type]


def test_home_and_variables_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RUN", "r1")
    atomic_save(checkpoint(3), "~/$RUN/a.ckpt")
    assert load(tmp_path / "r1" / "a.ckpt")["global_step"] == 3


def test_a_copy_is_a_file_of_its_own(tmp_path: Path) -> None:
    atomic_save(checkpoint(1), tmp_path / "a.ckpt")
    copy_atomically(tmp_path / "a.ckpt", tmp_path / "b.ckpt")
    atomic_save(checkpoint(2), tmp_path / "a.ckpt")
    assert load(tmp_path / "b.ckpt")["global_step"] == 1
    assert (tmp_path / "a.ckpt").stat().st_nlink == 1


def test_links_are_relative_and_can_replace_anything(tmp_path: Path) -> None:
    atomic_save(checkpoint(1), tmp_path / "run" / "a.ckpt")
    link = tmp_path / "run" / "last.ckpt"
    for before in (lambda: None, lambda: atomic_save(checkpoint(9), link), lambda: (remove(link), link.mkdir())):
        before()
        link_atomically(tmp_path / "run" / "a.ckpt", link)
        assert os.readlink(link) == "a.ckpt"
    (tmp_path / "run").rename(tmp_path / "moved")
    assert load(tmp_path / "moved" / "last.ckpt")["global_step"] == 1


def test_removing_a_link_keeps_the_file(tmp_path: Path) -> None:
    atomic_save(checkpoint(), tmp_path / "a.ckpt")
    link_atomically(tmp_path / "a.ckpt", tmp_path / "last.ckpt")
    remove(tmp_path / "last.ckpt")
    remove(tmp_path / "last.ckpt")
    assert os.listdir(tmp_path) == ["a.ckpt"]


def test_a_legacy_file_can_be_read(tmp_path: Path) -> None:
    torch.save(checkpoint(4), tmp_path / "old.ckpt", _use_new_zipfile_serialization=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(tmp_path / "old.ckpt")["global_step"] == 4
