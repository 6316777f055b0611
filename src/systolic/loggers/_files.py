"""Files that are whole at every moment, also when the process is killed; on this machine, or wherever fsspec reaches."""

import os
from typing import IO, Any

from fsspec.core import url_to_fs


def is_url(path: str) -> bool:
    """Whether a path is one of another file system, such as `gs://bucket/logs`."""
    return "://" in path


def exists(path: str) -> bool:
    """Whether there is a file."""
    if not is_url(path):
        return os.path.exists(path)
    fs, inside = url_to_fs(path)
    return bool(fs.exists(inside))


def opened_elsewhere(url: str) -> IO[str]:
    """A file of another file system, open for reading its lines as they are."""
    fs, inside = url_to_fs(url)
    file: Any = fs.open(inside, "r", encoding="utf-8", newline="")
    return file


def replace_file(path: str, data: bytes) -> None:
    """Write `data` as the whole content of `path`; a reader sees the old content or the new, never a part.

    Elsewhere that is as the file system has it: objects of a bucket are complete when they appear.
    """
    if is_url(path):
        fs, inside = url_to_fs(path)
        fs.makedirs(os.path.dirname(inside), exist_ok=True)
        fs.pipe_file(inside, data)
        return
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def append_to_file(path: str, data: bytes) -> None:
    """Append `data` in one system call; when that fails (a full disk), leave the file as it was."""
    with open(path, "ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            written = file.write(data)
            if written != len(data):
                raise OSError(f"Only {written} of {len(data)} bytes could be appended to {path}. Is the disk full?")
        except BaseException:
            file.truncate(size)
            raise


def drop_unfinished_line(path: str) -> bytes:
    """Cut off and return what follows the last newline: what a kill in the middle of an append leaves behind."""
    with open(path, "r+b") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            file.truncate(whole)
        return content[whole:]


def next_version(root_dir: str) -> int:
    """Return one more than the largest N of the directories `version_N` in `root_dir`, or 0."""
    parts = [name.partition("_") for name in _directories(root_dir)]
    return max((int(number) for prefix, _, number in parts if prefix == "version" and number.isdecimal()), default=-1) + 1


def _directories(root_dir: str) -> list[str]:
    if is_url(root_dir):
        fs, inside = url_to_fs(root_dir)
        found = fs.ls(inside, detail=True) if fs.isdir(inside) else []
        return [os.path.basename(entry["name"].rstrip("/")) for entry in found if entry["type"] == "directory"]
    if not os.path.isdir(root_dir):
        return []
    with os.scandir(root_dir) as entries:
        return [entry.name for entry in entries if entry.is_dir()]
