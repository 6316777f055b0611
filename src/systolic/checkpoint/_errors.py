"""Exceptions for everything that can be wrong with a checkpoint file."""

from collections.abc import Iterable

from ..exceptions import MisconfigurationException
from ..utilities._suggest import suggest


class CheckpointNotFoundError(MisconfigurationException, FileNotFoundError):
    """There is no checkpoint at the path; a `FileNotFoundError` too, as in Lightning."""


class CheckpointFormatError(MisconfigurationException):
    """There is a file, but it cannot be read as a checkpoint."""


class NoCheckpointError(MisconfigurationException, ValueError):
    """A checkpoint was asked for by what it is ("best"), and there is none; a `ValueError` too, as in Lightning."""


def missing_checkpoint(path: str, name: str, neighbours: Iterable[str], *, is_directory: bool) -> CheckpointNotFoundError:
    """The exception to raise when there is no file.

    Args:
        path: where it was looked for.
        name: the last part of the path.
        neighbours: the names in its directory; in the directory itself, if it is one.
        is_directory: whether there is a directory of this name.
    """
    found = sorted(neighbour for neighbour in neighbours if neighbour.endswith(".ckpt"))
    listing = f" Checkpoints there: {', '.join(map(repr, found[:10]))}." if found else ""
    if is_directory:
        return CheckpointNotFoundError(f"{path!r} is a directory; pass the path of a checkpoint file.{listing}")
    return CheckpointNotFoundError(f"Checkpoint file not found: {path}.{suggest(name, found)}{listing}")
