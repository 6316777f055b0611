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


def one_slip_away(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that one letter more, less, changed or exchanged makes of a name; None where there is none.

    Example:
        >>> one_slip_away("validaton_step", ["training_step", "validation_step"])
        'validation_step'
    """
    return next((candidate for candidate in candidates if _is_one_slip(name, candidate)), None)


def _is_one_slip(one: str, other: str) -> bool:
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    rest, others = one[same:], other[same:]
    exchanged = rest[:2] == others[:2][::-1] and rest[2:] == others[2:]
    return exchanged or rest[1:] == others[1:] or rest == others[1:] or rest[1:] == others


def _normalise(name: str) -> str:
    return name.lower().replace("-", "_")
