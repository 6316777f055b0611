"""Lightning's name for the summary that is drawn with rich."""

from .model_summary import ModelSummary


class RichModelSummary(ModelSummary):
    """The same as `ModelSummary`, which always draws with rich."""
