"""Directories of loggers that write files: `<save_dir>/<name>/version_N`."""

import os

from ._files import next_version
from .logger import Logger


class VersionedLogger(Logger):
    """A logger with one directory a run, numbered as Lightning numbers them.

    Args:
        save_dir: Directory of all experiments, or a URL such as `gs://bucket/logs` of any file system that fsspec knows. `~`
            and environment variables are expanded.
        name: Name of the experiment; None or empty puts the versions into `save_dir` itself.
        version: Version of the run; None takes the next free number, a string is used as the directory's name.
        prefix: Text to put before every metric's name.
    """

    LOGGER_JOIN_CHAR = "-"

    def __init__(self, save_dir: str | os.PathLike[str], name: str | None, version: int | str | None, prefix: str) -> None:
        self._save_dir = os.fspath(save_dir)
        self._name = name or ""
        self._version = version
        self._prefix = prefix

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self._name

    @property
    def version(self) -> int | str:
        """Version of the run; the next free number is chosen on first use."""
        if self._version is None:
            self._version = next_version(self.root_dir)
        return self._version

    @property
    def save_dir(self) -> str:
        """Directory of all experiments, as given."""
        return self._save_dir

    @property
    def root_dir(self) -> str:
        """Directory of all versions of this experiment."""
        return expanded(os.path.join(self._save_dir, self.name))

    @property
    def log_dir(self) -> str:
        """Directory of this run."""
        version = self.version if isinstance(self.version, str) else f"version_{self.version}"
        return os.path.join(self.root_dir, expanded(version))


def expanded(path: str) -> str:
    """Expand environment variables and `~`."""
    return os.path.expanduser(os.path.expandvars(path))
