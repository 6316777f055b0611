"""Paths of Python's own library and installed packages, as opposed to what the user wrote."""

from __future__ import annotations

import functools
import sysconfig

INSTALLED = tuple({sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Beginnings of the paths of their files."""

# of `pip install --user`, of Debian and Colab, and of the environment below a virtual environment
_PACKAGES = ("/site-packages/", "/dist-packages/")


def is_installed(file: str) -> bool:
    """Whether a source file is Python's own or of an installed package."""
    return file.startswith(INSTALLED) or is_in_packages(file)


@functools.cache
def is_in_packages(file: str) -> bool:
    """Whether a source file lies in a directory of installed packages."""
    return any(part in file for part in _PACKAGES)
