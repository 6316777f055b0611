"""Writing and reading checkpoint files.

A name only ever appears in a directory when its file is complete: data goes to a temporary file beside it first. So a
process killed at any instant leaves the old checkpoint or the new one.
"""

import os
import pickle
import shutil
import time
import uuid
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.serialization import get_unsafe_globals_in_checkpoint

from systolic.checkpoint._errors import CheckpointFormatError, CheckpointNotFoundError
from systolic.exceptions import MisconfigurationException
from systolic.utilities._suggest import suggest

PathLike = str | os.PathLike[str]

_TEMPORARY_SUFFIX = ".systolic-tmp"
_ABANDONED_AFTER_S = 3600.0


def atomic_save(checkpoint: dict[str, Any], path: PathLike) -> None:
    """Write a checkpoint so that `path` holds the whole of it or what it held before, whatever happens.

    Missing directories are created. Warns when the file will need `weights_only=False` to be read.

    Args:
        checkpoint: what to save; `torch.load(path, weights_only=True)` gives it back when it consists of tensors,
            numbers, strings, and the dicts and lists of these.
        path: the file to write or replace.
    """
    if not isinstance(checkpoint, dict):
        raise TypeError(f"A checkpoint is a dict, received {type(checkpoint).__name__}.")
    target = local_path(path)
    with _replacing(target) as temporary:
        with open(temporary, "xb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        _warn_if_not_plain(temporary, target)


def copy_atomically(source: PathLike, target: PathLike) -> None:
    """Make `target` a copy of the file `source`, complete at every moment that it can be seen."""
    with _replacing(local_path(target)) as temporary:
        shutil.copyfile(source, temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())


def link_atomically(source: PathLike, link: PathLike) -> None:
    """Make `link` a symbolic link to `source`, relative so that the directory can be moved."""
    link = local_path(link)
    relative = os.path.relpath(source, os.path.dirname(link))
    if os.path.islink(link) and os.readlink(link) == relative:
        return
    if os.path.isdir(link) and not os.path.islink(link):
        shutil.rmtree(link)
    with _replacing(link) as temporary:
        os.symlink(relative, temporary)


def remove(path: PathLike) -> None:
    """Delete a checkpoint file or directory; one that is gone already is no error."""
    with suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def load(path: PathLike, map_location: Any = "cpu", weights_only: bool = True) -> dict[str, Any]:
    """Read a checkpoint of systolic or Lightning.

    Args:
        path: the file.
        map_location: where tensors go, as in `torch.load`.
        weights_only: refuse files that hold anything but tensors and plain Python values. False runs code that the
            file may contain: only for files that you trust.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointFormatError: the file is damaged, is something else, or holds more than plain values.
    """
    source = local_path(path)
    _require_file(source)
    checkpoint = _read(source, lambda: torch.load(source, map_location=map_location, weights_only=weights_only))
    if not isinstance(checkpoint, dict):
        raise CheckpointFormatError(
            f"{source!r} is not a checkpoint: it holds an object of type {type(checkpoint).__name__}, not a dict with "
            "a 'state_dict'. Write checkpoints with trainer.save_checkpoint(path) or a ModelCheckpoint callback."
        )
    if "state_dict" not in checkpoint:
        keys = ", ".join(repr(key) for key in list(checkpoint)[:5])
        raise CheckpointFormatError(
            f"{source!r} is not a checkpoint: it has no 'state_dict', only {keys or 'nothing'}. If it is a bare "
            "state_dict of a model, load it with model.load_state_dict(torch.load(path)) before the Trainer starts."
        )
    return checkpoint


def local_path(path: PathLike) -> str:
    """Return `path` absolute, with `~` and environment variables expanded; refuse URLs."""
    text = os.fspath(path)
    if "://" in text:
        raise MisconfigurationException(
            f"{text!r}: checkpoints are local files. Use a local path and copy the file, or mount the bucket."
        )
    return os.path.abspath(os.path.expanduser(os.path.expandvars(text)))


@contextmanager
def _replacing(target: str) -> Iterator[str]:
    """Yield the name of a temporary file that takes the place of `target` when the block ends well."""
    directory, name = os.path.split(target)
    os.makedirs(directory, exist_ok=True)
    # Unique, so that two processes which write the same checkpoint cannot mix their bytes.
    temporary = os.path.join(directory, f".{name[:100]}.{uuid.uuid4().hex}{_TEMPORARY_SUFFIX}")
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        remove(temporary)
        raise
    _sync_directory(directory)
    _remove_abandoned(directory)


def _sync_directory(directory: str) -> None:
    """Make a rename survive a power cut; only POSIX can open directories."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_abandoned(directory: str) -> None:
    """Delete temporary files of processes that were killed while they saved; a live one changes its file all along."""
    oldest = time.time() - _ABANDONED_AFTER_S
    with os.scandir(directory) as entries:
        names = [entry.path for entry in entries if entry.name.endswith(_TEMPORARY_SUFFIX)]
    for name in names:
        with suppress(FileNotFoundError):
            if os.lstat(name).st_mtime < oldest:
                os.unlink(name)


def _warn_if_not_plain(temporary: str, target: str) -> None:
    try:
        torch.load(temporary, map_location="meta", weights_only=True)  # on "meta" no tensor's data is read
    except pickle.UnpicklingError:
        warnings.warn(
            f"{target!r} holds more than tensors and plain values ({_unsafe_names(temporary)}), so "
            "torch.load(weights_only=True) will refuse it. Look in hparams, state_dict() and on_save_checkpoint() for "
            "these objects, and save strings, numbers, lists or dicts in their place.",
            stacklevel=4,
        )


def _unsafe_names(path: str) -> str:
    try:
        return ", ".join(sorted(get_unsafe_globals_in_checkpoint(path))) or "unknown objects"
    except pickle.UnpicklingError:  # this scan knows fewer of pickle's instructions than loading does
        return "unknown objects"


def _require_file(path: str) -> None:
    if os.path.isfile(path):
        return
    directory = path if os.path.isdir(path) else os.path.dirname(path)
    found = sorted(name for name in os.listdir(directory) if name.endswith(".ckpt")) if os.path.isdir(directory) else []
    listing = f" Checkpoints there: {', '.join(map(repr, found[:10]))}." if found else ""
    if os.path.isdir(path):
        raise CheckpointNotFoundError(f"{path!r} is a directory; pass the path of a checkpoint file.{listing}")
    if not os.path.isdir(directory):
        raise CheckpointNotFoundError(f"No checkpoint at {path!r}: there is no directory {directory!r}.")
    raise CheckpointNotFoundError(f"No checkpoint at {path!r}.{suggest(os.path.basename(path), found)}{listing}")


def _read(path: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, ImportError) as error:
        raise CheckpointFormatError(_explain(path, error)) from error


def _explain(path: str, error: Exception) -> str:
    if not zipfile.is_zipfile(path):
        size = os.path.getsize(path)
        return (
            f"{path!r} ({size} bytes) is not a checkpoint, or was cut off when it was copied. Take another checkpoint, "
            "or copy it again and compare the sizes."
        )
    if isinstance(error, pickle.UnpicklingError):
        return (
            f"{path!r} is damaged, or holds more than tensors and plain values: {_unsafe_names(path)}. If you trust its "
            "origin, pass weights_only=False, or allow these classes with torch.serialization.add_safe_globals([...])."
        )
    return f"{path!r} cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
