"""Values that `self.log` collects, and how they are reduced over an epoch."""

from ._log_options import LogOptions as LogOptions
from ._metric_states import is_metric as is_metric
from ._metric_states import metric_states as metric_states
from ._metric_states import metrics_of as metrics_of
from ._metric_states import reset_metrics as reset_metrics
from ._metric_states import restore_metric_states as restore_metric_states
from ._results import CAPACITY as CAPACITY
from ._results import LogEntry as LogEntry
from ._results import Results as Results
from ._results import StepLog as StepLog
from ._results import reduction_name as reduction_name
