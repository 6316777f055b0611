"""What `self.log` collects, and how it is reduced over an epoch."""

from ._log_options import LogOptions as LogOptions
from ._results import CAPACITY as CAPACITY
from ._results import LogEntry as LogEntry
from ._results import Results as Results
from ._results import StepLog as StepLog
from ._results import reduction_name as reduction_name
