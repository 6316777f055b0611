"""Bad checkpoints: paths, files, and what is in them."""

from __future__ import annotations

import pickle
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from trainer.three_ways import loader, regression

import systolic as L
from systolic.exceptions import MisconfigurationException

from .cases import Answer, Case, trainer

Change = Callable[[dict[str, Any]], Any]


def module(**methods: Any) -> Any:
    return regression(L.LightningModule, **methods)()


def _saved(directory: Path, **options: Any) -> Path:
    """A checkpoint of a short run."""
    own = trainer(compile=False, max_steps=2, **options)
    own.fit(module(), loader())
    own.save_checkpoint(directory / "a.ckpt")
    return directory / "a.ckpt"


def in_directory(given: str, act: Callable[[Path], object], says: str, answer: Answer = MisconfigurationException) -> Case:
    def tried() -> None:
        with tempfile.TemporaryDirectory() as directory:
            act(Path(directory))

    return Case(given, tried, answer, says)


def of_contents(given: str, change: Change, says: str, answer: Answer = MisconfigurationException, **methods: Any) -> Case:
    """A checkpoint of which `change` has made another one, resumed."""

    def act(directory: Path) -> None:
        path = _saved(directory)
        contents = torch.load(path, weights_only=True)
        changed = change(contents)
        torch.save(contents if changed is None else changed, path)
        trainer(compile=False).fit(module(**methods), loader(), ckpt_path=path)

    return in_directory(f"a checkpoint {given}", act, says, answer)


def of_file(given: str, change: Callable[[Path], object], says: str, answer: Answer = MisconfigurationException) -> Case:
    """A file that `change` has changed, resumed."""

    def act(directory: Path) -> None:
        path = _saved(directory)
        change(path)
        trainer(compile=False).fit(module(), loader(), ckpt_path=path)

    return in_directory(f"a file {given}", act, says, answer)


class Command:
    """A pickle of it would run a command."""

    def __reduce__(self) -> Any:
        return print, ("code of a checkpoint ran",)


def _flip(path: Path) -> None:
    contents = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        name = max(archive.infolist(), key=lambda entry: entry.file_size * ("data/" in entry.filename))
    contents[name.header_offset + 200] ^= 1
    path.write_bytes(contents)


def _without(*keys: str) -> Change:
    def change(contents: dict[str, Any]) -> None:
        for key in keys:
            del contents[key]

    return change


def _with(**entries: Any) -> Change:
    return lambda contents: contents.update(entries)


def _fit(path: Any) -> Callable[[], object]:
    return lambda: trainer(compile=False).fit(module(), loader(), ckpt_path=path)


PATHS = (
    Case("fit(ckpt_path=3)", _fit(3), MisconfigurationException, "`ckpt_path`"),
    Case("fit(ckpt_path=b'x')", _fit(b"x"), MisconfigurationException, "`ckpt_path`"),
    Case("fit(ckpt_path=['x'])", _fit(["x"]), MisconfigurationException, "`ckpt_path`"),
    Case("fit(ckpt_path=True)", _fit(True), MisconfigurationException, "`ckpt_path`"),
    Case("fit(ckpt_path={...})", _fit({"state_dict": {}}), MisconfigurationException, "`ckpt_path`"),
    Case("fit(ckpt_path='nowhere/a.ckpt')", _fit("nowhere/a.ckpt"), FileNotFoundError, "there is no directory"),
    Case("fit(ckpt_path='nowhere.ckpt')", _fit("nowhere.ckpt"), FileNotFoundError, "Checkpoint file not found"),
    Case("fit(ckpt_path='.')", _fit("."), FileNotFoundError, "is a directory; pass the path of a checkpoint file"),
    Case("fit(ckpt_path='')", _fit(""), MisconfigurationException, "`ckpt_path`"),
    Case("fit(ckpt_path='best') before any", _fit("best"), ValueError, "`ModelCheckpoint` is not configured"),
    Case("fit(ckpt_path='hpc') before any", _fit("hpc"), ValueError, "there is no hpc_ckpt_1.ckpt"),
    Case("fit(ckpt_path='last') before any", _fit("last"), Warning, "there is no last checkpoint"),
    Case("fit(ckpt_path='nothing://a.ckpt')", _fit("nothing://a.ckpt"), MisconfigurationException, "nothing"),
    Case(
        "test(ckpt_path='best') before any fit",
        lambda: trainer().test(module(test_step=lambda self, batch: None), loader(), ckpt_path="best"),
        ValueError, "`ModelCheckpoint` is not configured",
    ),
    Case(
        "save_checkpoint before fit", lambda: trainer().save_checkpoint("a.ckpt"), MisconfigurationException,
        "There is nothing to save before fit",
    ),
    in_directory(
        "save_checkpoint(3)", lambda d: (t := trainer(compile=False)).fit(module(), loader()) or t.save_checkpoint(3),
        "Expected the path or the URL of a checkpoint",
    ),
    in_directory(
        "save_checkpoint(a directory)",
        lambda d: (t := trainer(compile=False)).fit(module(), loader()) or t.save_checkpoint(d), "there is a directory of this name", OSError,
    ),
    in_directory(
        "save_checkpoint below a file",
        lambda d: (d / "a").touch() or (t := trainer(compile=False)).fit(module(), loader()) or t.save_checkpoint(d / "a/b.ckpt"),
        "The checkpoint cannot be saved", OSError,
    ),
    in_directory(
        "save_checkpoint(a name of 300 letters)",
        lambda d: (t := trainer(compile=False)).fit(module(), loader()) or t.save_checkpoint(d / ("a" * 300)),
        "File name too long", OSError,
    ),
    in_directory(
        "load_from_checkpoint(3)", lambda d: L.LightningModule.load_from_checkpoint(3),
        "Expected the path or the URL of a checkpoint",
    ),
    in_directory(
        "load_from_checkpoint(nowhere)", lambda d: L.LightningModule.load_from_checkpoint(d / "no.ckpt"),
        "Checkpoint file not found", FileNotFoundError,
    ),
    in_directory(
        "load_from_checkpoint(hparams_file='a.txt')",
        lambda d: type(module()).load_from_checkpoint(_saved(d), hparams_file="a.txt"), ".csv, .yaml or .yml", ValueError,
    ),
)  # fmt: skip

FILES = (
    of_file("cut off", lambda path: path.write_bytes(path.read_bytes()[:-300]), "a.ckpt"),
    of_file("with one flipped bit", _flip, "its checksum does not fit"),
    of_file("of text", lambda path: path.write_text("hello"), "is not a checkpoint"),
    of_file("of nothing", lambda path: path.write_bytes(b""), "is not a checkpoint"),
    of_file("of another archive", lambda path: zipfile.ZipFile(path, "w").writestr("a", "b"), "a.ckpt"),
    of_file("with a pickle that would run code", lambda path: path.write_bytes(pickle.dumps(Command())), "is not a checkpoint"),
    of_file(
        "with a torch pickle that would run code", lambda path: torch.save({"state_dict": Command()}, path),
        "weights_only=False",
    ),
    of_file("with a list", lambda path: torch.save([1], path), "holds an object of type list"),
    of_file("with a tensor", lambda path: torch.save(torch.ones(1), path), "holds an object of type Tensor"),
    of_file("with a bare state_dict", lambda path: torch.save(module().state_dict(), path), "has no 'state_dict'"),
)  # fmt: skip

CONTENTS = (
    of_contents("without weights", _without("state_dict"), "has no 'state_dict'"),
    of_contents("of other weights", _with(state_dict={"a": torch.ones(1)}), "Missing key(s) in state_dict", RuntimeError),
    of_contents(
        "with a weight of another shape", lambda c: c["state_dict"].update({"first.weight": torch.ones(3, 3)}),
        "size mismatch for first.weight", RuntimeError,
    ),
    of_contents("with weights that are no dict", _with(state_dict=3), "'state_dict' of the checkpoint does not fit"),
    of_contents("without optimizers", _without("optimizer_states"), "holds no optimizer_states"),
    of_contents("without schedulers", _without("lr_schedulers"), "holds no lr_schedulers"),
    of_contents("of weights only", _without("optimizer_states", "lr_schedulers", "callbacks", "position"), "saved with weights only"),
    of_contents("with optimizers that are no list", _with(optimizer_states=3), "'optimizer_states'"),
    of_contents("with optimizers of garbage", _with(optimizer_states=["x"]), "'optimizer_states'"),
    of_contents("with two optimizers", lambda c: c["optimizer_states"].append(c["optimizer_states"][0]), "has 2 optimizers"),
    of_contents("with no optimizer", _with(optimizer_states=[]), "has 0 optimizers"),
    of_contents(
        "of SGD for Adam", lambda c: None, "it is of another optimizer than this Adam",
        configure_optimizers=lambda self: torch.optim.Adam(self.parameters()),
    ),
    of_contents(
        "for another number of parameter groups", lambda c: None, "parameter groups",
        configure_optimizers=lambda self: torch.optim.SGD(
            [{"params": self.first.parameters()}, {"params": self.second.parameters()}], lr=0.1, momentum=0.9
        ),
    ),
    of_contents("with schedulers of garbage", _with(lr_schedulers=3), "'lr_schedulers'"),
    of_contents("with a scheduler too many", _with(lr_schedulers=[{}]), "has 1 scheduler(s)", Warning),
    of_contents("with callbacks of garbage", _with(callbacks=3), "'callbacks'"),
    of_contents("with a callback that is not there", _with(callbacks={"EarlyStopping{}": {"a": 1}}), "does not have", Warning),
    of_contents("without epoch", _without("epoch"), "'epoch'"),
    of_contents("with an epoch of text", _with(epoch="3"), "'epoch'"),
    of_contents("with a negative epoch", _with(epoch=-1), "'epoch'"),
    of_contents("of a later epoch", _with(epoch=7), "is beyond Trainer(max_epochs=1)"),
    of_contents("without global_step", _without("global_step"), "'global_step'"),
    of_contents("with a global_step of text", _with(global_step="3"), "'global_step'"),
    of_contents("with epochs_done of text", _with(epochs_done="x"), "'epochs_done'"),
    of_contents("with batches_that_stepped of None", _with(batches_that_stepped=None), "'batches_that_stepped'"),
    of_contents("with a random_state of garbage", _with(random_state="x"), "'random_state'"),
    of_contents("with varying_numbers of garbage", _with(varying_numbers=3), "'varying_numbers'"),
    of_contents("with half of varying_numbers", _with(varying_numbers={"varying": 3}), "'varying_numbers'"),
    of_contents("with a position of garbage", _with(position=3), "'position'"),
    of_contents("with half a position", _with(position={"in_epoch": True}), "'position'"),
    of_contents("with loops of garbage", _with(loops=3), "'loops'"),
)  # fmt: skip

CASES = {"Checkpoints: paths": PATHS, "Checkpoints: files": FILES, "Checkpoints: contents": CONTENTS}
