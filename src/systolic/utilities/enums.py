"""Names that arguments of the Trainer take."""

from __future__ import annotations

from enum import StrEnum


class GradClipAlgorithmType(StrEnum):
    """Ways to clip gradients: `Trainer(gradient_clip_algorithm=...)` takes these and their text.

    Example:
        >>> GradClipAlgorithmType("norm") == "norm"
        True
    """

    VALUE = "value"
    NORM = "norm"

    @staticmethod
    def supported_type(val: str) -> bool:
        """Whether there is such a way."""
        return val in GradClipAlgorithmType.supported_types()

    @staticmethod
    def supported_types() -> list[str]:
        """The text of each."""
        return [kind.value for kind in GradClipAlgorithmType]
