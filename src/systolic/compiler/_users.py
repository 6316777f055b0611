"""Distinction between the user's code and installed code."""

from __future__ import annotations

import functools
import sys

from ..utilities._installed import is_installed
from ._errors import is_user_frame


@functools.cache
def is_the_users(module_name: str) -> bool:
    """Whether a Python module is a file of the user's, or the notebook."""
    file = getattr(sys.modules.get(module_name), "__file__", None)
    if file is None:
        return module_name == "__main__"
    return is_user_frame(file) and not is_installed(file)
