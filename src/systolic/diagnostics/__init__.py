"""Diagnostics: everything that a run can be asked about itself."""

from ._advisor import AdviceWarning as AdviceWarning
from ._advisor import Advisor as Advisor
from ._metrics import Metrics as Metrics
from ._page import headline as headline
from ._page import page as page
from ._recorder import Recorder as Recorder
from ._recorder import Started as Started
from ._run_file import MOST_RUNS as MOST_RUNS
from ._run_file import RUN_FILE as RUN_FILE
from ._run_file import Document as Document
from ._run_file import read_metrics as read_metrics
from ._run_file import read_runs as read_runs
from ._run_file import write_runs as write_runs
from ._run_page import run_page as run_page
from ._run_record import DEVICES as DEVICES
from ._run_record import SAVING as SAVING
from ._run_record import Activity as Activity
from ._run_record import RunRecord as RunRecord
