"""Errors of the data layer: each says what was expected, what came, and what to do next."""

from ..exceptions import MisconfigurationException


class EmptyLoaderError(MisconfigurationException):
    """A loader that yields no batch."""


class NotIterableError(MisconfigurationException, TypeError):
    """An object given as a loader that cannot be iterated; a `TypeError` too, as in Lightning."""
