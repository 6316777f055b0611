"""What to change, each piece of advice with the figures that it rests on.

Ideas that need nothing but the compiled step are in `_advise_*.py` and cost nothing. Those that have to compile the step
once more, with another batch or precision, take `Trials` and are in `_advise_by_*.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ._figures import Figure


@dataclass(frozen=True)
class Advice:
    """One thing to change, or to know.

    Attributes:
        topic: what it is about: "memory", "batch size", "matrix unit", "precision", "attention", "time",
            "gather and scatter", "layout", "host".
        text: what to do, in a sentence or two.
        evidence: the figures that it rests on; each says how it was obtained.
    """

    topic: str
    text: str
    evidence: tuple[Figure, ...]
