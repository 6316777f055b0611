"""Compile a step for a TPU slice that is not here, and say what it would do there."""

from ._advise import advised_by_trials as advised_by_trials
from ._build import report_on as report_on
from ._comparison import Comparison as Comparison
from ._concurrent import progress as progress
from ._concurrent import reports_on as reports_on
from ._model import Advice as Advice
from ._model import Figure as Figure
from ._model import Measurement as Measurement
from ._report import PreflightReport as PreflightReport
from ._slices import Slice as Slice
from ._slices import parse_slice as parse_slice
from ._slices import slice_names as slice_names
from ._step import TracedStep as TracedStep
from ._topology import slice_devices as slice_devices
from ._trials import Variant as Variant
from .planning import Cell as Cell
from .planning import Choice as Choice
from .planning import Plan as Plan
from .planning import PlanRequest as PlanRequest
from .planning import RunLength as RunLength
from .planning import make_plan as make_plan
from .planning import parse_duration as parse_duration
from .planning import parse_prices as parse_prices
from .planning import slices_in as slices_in
