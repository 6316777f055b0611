"""Checkpoints: written atomically; a file of one is readable with plain `torch.load(weights_only=True)`."""

from ._async_io import AsyncCheckpointIO
from ._conversion import convert
from ._description import Description, Part, TensorEntry, describe
from ._errors import CheckpointFormatError, CheckpointNotFoundError, NoCheckpointError
from ._io import CheckpointIO, TorchCheckpointIO
from ._location import is_inside, is_remote, location, require_path
from ._sharded_io import ShardedCheckpointIO
from ._snapshot import send_parts, snapshot
from ._storage import atomic_save, copy_atomically, link_atomically, load, remove
from ._tolerant_io import TolerantCheckpointIO

__all__ = [
    "AsyncCheckpointIO",
    "CheckpointFormatError",
    "CheckpointIO",
    "CheckpointNotFoundError",
    "Description",
    "NoCheckpointError",
    "Part",
    "ShardedCheckpointIO",
    "TensorEntry",
    "TolerantCheckpointIO",
    "TorchCheckpointIO",
    "atomic_save",
    "convert",
    "copy_atomically",
    "describe",
    "is_inside",
    "is_remote",
    "link_atomically",
    "load",
    "location",
    "remove",
    "require_path",
    "send_parts",
    "snapshot",
]
