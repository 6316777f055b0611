"""Turns of captures and of the user's hooks in other threads: what a hook does to objects must not be seen by a capture."""

from __future__ import annotations

import threading

CAPTURE_LOCK = threading.RLock()
"""Held while a step is captured, and by a thread while it calls code of the user's that knows the objects of a step.

A capture walks over the module, lets the step change it, reads off what changed and puts everything back. A batch that a
hook in the loader's thread appends to a list of the module meanwhile would be taken for the step's doing, or be lost. One
lock for all engines, since their modules may share objects; reentrant, since a feed without a thread runs in the main one.
"""
