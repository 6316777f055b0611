"""Name the argument, option or attribute that a misspelt one was probably meant to be."""

import difflib
from collections.abc import Iterable


def suggest(name: str, candidates: Iterable[str]) -> str:
    """Return `" Did you mean 'max_epochs'?"` for the nearest candidate, or `""` when none is near.

    Case and the choice between `-` and `_` do not count as differences. The leading space lets callers append the
    result to any sentence.
    """
    by_spelling = {_normalise(candidate): candidate for candidate in reversed(list(candidates))}
    nearest = difflib.get_close_matches(_normalise(name), by_spelling, n=1)
    return f" Did you mean {by_spelling[nearest[0]]!r}?" if nearest else ""


def _normalise(name: str) -> str:
    return name.lower().replace("-", "_")
