"""Looking at the step of a run that is not made: for preflight and measurements."""

from ._inspection import Subject as Subject
from ._inspection import trace_step as trace_step
from ._plan import plan as plan
from ._preflight import preflight as preflight
from ._preflight import require_possible as require_possible
from ._report import report as report
from ._report import report_of as report_of
