"""Aliases at the path where Lightning has them: `from systolic.utilities.exceptions import MisconfigurationException`."""

from ..exceptions import MisconfigurationException as MisconfigurationException
