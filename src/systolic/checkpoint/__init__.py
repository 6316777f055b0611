"""Checkpoint files: written atomically, readable with plain `torch.load(weights_only=True)`."""

from systolic.checkpoint._async_io import AsyncCheckpointIO
from systolic.checkpoint._errors import CheckpointFormatError, CheckpointNotFoundError
from systolic.checkpoint._files import atomic_save, copy_atomically, link_atomically, load, remove
from systolic.checkpoint._io import CheckpointIO, TorchCheckpointIO
from systolic.checkpoint._snapshot import snapshot

__all__ = [
    "AsyncCheckpointIO",
    "CheckpointFormatError",
    "CheckpointIO",
    "CheckpointNotFoundError",
    "TorchCheckpointIO",
    "atomic_save",
    "copy_atomically",
    "link_atomically",
    "load",
    "remove",
    "snapshot",
]
