"""What can be wrong with a checkpoint file."""

from systolic.exceptions import MisconfigurationException


class CheckpointNotFoundError(MisconfigurationException, FileNotFoundError):
    """There is no checkpoint at the path; a `FileNotFoundError` too, as in Lightning."""


class CheckpointFormatError(MisconfigurationException):
    """There is a file, but it cannot be read as a checkpoint."""
