"""Checkpoint files: written atomically, readable with plain `torch.load(weights_only=True)`."""

from systolic.checkpoint._async_io import AsyncCheckpointIO
from systolic.checkpoint._errors import CheckpointFormatError, CheckpointNotFoundError, NoCheckpointError
from systolic.checkpoint._io import CheckpointIO, TorchCheckpointIO
from systolic.checkpoint._location import is_inside, is_remote, location
from systolic.checkpoint._snapshot import snapshot
from systolic.checkpoint._storage import atomic_save, copy_atomically, link_atomically, load, remove

__all__ = [
    "AsyncCheckpointIO",
    "CheckpointFormatError",
    "CheckpointIO",
    "CheckpointNotFoundError",
    "NoCheckpointError",
    "TorchCheckpointIO",
    "atomic_save",
    "copy_atomically",
    "is_inside",
    "is_remote",
    "link_atomically",
    "load",
    "location",
    "remove",
    "snapshot",
]
