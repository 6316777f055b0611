"""Paths of Python's own library and installed packages, as opposed to what the user wrote."""

from __future__ import annotations

import sysconfig

INSTALLED = tuple({sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Beginnings of the paths of their files."""
