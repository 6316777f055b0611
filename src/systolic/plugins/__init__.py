"""Plugins that `Trainer(plugins=[...])` takes."""

from ..checkpoint import AsyncCheckpointIO as AsyncCheckpointIO
from ..checkpoint import CheckpointIO as CheckpointIO
from ..checkpoint import ShardedCheckpointIO as ShardedCheckpointIO
from ..checkpoint import TolerantCheckpointIO as TolerantCheckpointIO
from ..checkpoint import TorchCheckpointIO as TorchCheckpointIO
from . import environments as environments
from ._choice import choose_checkpoint_io as choose_checkpoint_io
from ._sorting import sort_plugins as sort_plugins
