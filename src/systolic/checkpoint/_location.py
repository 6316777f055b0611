"""Resolution of a checkpoint's path: a local file, or an object of any file system that fsspec knows."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from ..exceptions import MisconfigurationException

PathLike = str | os.PathLike[str]
MapLocation = str | torch.device | dict[str, str] | Callable[[Any, str], Any] | None
"""Where tensors of a checkpoint go, as in `torch.load`."""

TEMPORARY_SUFFIX = ".systolic-tmp"
"""Of the names of files that are being written."""

CONTENTS = "contents.ckpt"
"""In a directory that is a checkpoint, the file that completes it."""

_LOCAL = ("file://", "local://")


def require_path(path: object) -> str:
    """A path as text.

    Raises:
        MisconfigurationException: it is something else.
    """
    if not isinstance(path, str | os.PathLike):
        raise MisconfigurationException(
            "Expected the path or the URL of a checkpoint, as text or as a pathlib.Path. Received: "
            f"{path!r} of type {type(path).__name__}."
        )
    return str(os.fspath(path))


def is_remote(path: PathLike) -> bool:
    """Whether the path is a URL such as `gs://bucket/a.ckpt`; `file://` is local."""
    text = require_path(path)
    return "://" in text and not text.startswith(_LOCAL)


def location(path: PathLike) -> str:
    """The one spelling of a path: a URL as it is, a local one absolute, with `~` and environment variables expanded."""
    text = require_path(path)
    if is_remote(text):
        return text.rstrip("/")
    for prefix in _LOCAL:
        text = text.removeprefix(prefix)
    return os.path.abspath(os.path.expanduser(os.path.expandvars(text)))


def is_inside(path: PathLike, directory: PathLike) -> bool:
    """Whether a file lies in a directory or below it."""
    inner, outer = location(path), location(directory)
    return inner.startswith(outer.rstrip("/" + os.sep) + ("/" if is_remote(outer) else os.sep))
