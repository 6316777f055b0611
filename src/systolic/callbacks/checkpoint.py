"""Base class by which the Trainer recognises checkpointing callbacks."""

from .callback import Callback


class Checkpoint(Callback):
    """Base class of callbacks that save checkpoints; the Trainer runs them after all others."""
