"""The plugins for checkpoints, under Lightning's module name."""

from ..checkpoint import AsyncCheckpointIO as AsyncCheckpointIO
from ..checkpoint import CheckpointIO as CheckpointIO
from ..checkpoint import ShardedCheckpointIO as ShardedCheckpointIO
from ..checkpoint import TolerantCheckpointIO as TolerantCheckpointIO
from ..checkpoint import TorchCheckpointIO as TorchCheckpointIO
