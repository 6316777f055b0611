"""Diagnostics: everything that a run can be asked about itself."""

from ._advisor import AdviceWarning as AdviceWarning
from ._advisor import Advisor as Advisor
from ._metrics import Metrics as Metrics
from ._page import headline as headline
from ._page import page as page
from ._recorder import Recorder as Recorder
from ._recorder import Started as Started
