"""Directories that nobody else can write to: for files that are run, or believed, when they are read."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

try:
    import grp
    import pwd
except ImportError:  # Windows, whose permissions these checks do not know
    grp = pwd = None


def make_directories(directory: Path) -> None:
    """Make a directory and what is missing above it, all for this user only."""
    for path in (*reversed(directory.parents), directory):
        with contextlib.suppress(FileExistsError):
            if not path.exists():
                path.mkdir(mode=0o700)
    if not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))


def why_not_private(directory: Path) -> str | None:
    """Reason why somebody else could put files into a directory; None where nobody can.

    A link above the directory that this user or root has made is followed, and where it leads is looked at. Root is trusted,
    and so is a sticky directory such as `/tmp` above: others cannot exchange what is in it.

    Args:
        directory: one that is there.
    """
    if pwd is None:
        return None
    own = directory.absolute()
    if own.is_symlink():
        return f"{str(own)!r} is a link"
    for path in (own, *own.parents):
        if path.is_symlink() and (reason := _why_not_trusted(path, followed=False)):
            return reason
    real = Path(os.path.realpath(own))
    for path in (real, *real.parents):
        if reason := _why_not_trusted(path, may_be_sticky=path != real):
            return reason
    return None


def _why_not_trusted(path: Path, *, followed: bool = True, may_be_sticky: bool = False) -> str | None:
    found = path.stat() if followed else path.lstat()
    if found.st_uid not in (0, os.getuid()):
        return f"{str(path)!r} belongs to another user (uid {found.st_uid})"
    if not followed or (may_be_sticky and found.st_mode & stat.S_ISVTX):
        return None
    others = bool(found.st_mode & stat.S_IWOTH)
    if others or (found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)):
        return f"{str(path)!r} can be written to by {'everybody' if others else f'group {found.st_gid}'}"
    return None


def _is_own_group(gid: int) -> bool:
    """Whether a group is that of one user, as many systems make one for each: root's, or this user's."""
    if gid == 0:
        return True
    assert grp is not None
    assert pwd is not None
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
