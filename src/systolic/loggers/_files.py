"""Files that are whole at every moment, also when the process is killed."""

import os


def replace_file(path: str, data: bytes) -> None:
    """Write `data` as the whole content of `path`; a reader sees the old content or the new, never a part."""
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
    if not os.path.isdir(root_dir):
        return 0
    with os.scandir(root_dir) as entries:
        suffixes = [entry.name.removeprefix("version_") for entry in entries if _is_version(entry)]
    return max((int(suffix) for suffix in suffixes), default=-1) + 1


def _is_version(entry: os.DirEntry[str]) -> bool:
    prefix, _, number = entry.name.partition("_")
    return prefix == "version" and number.isdecimal() and entry.is_dir()
