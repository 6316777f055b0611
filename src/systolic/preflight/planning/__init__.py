"""Plans: search slices, strategies, remat and divisions of the batch for the cheapest and the fastest way to train."""

from ._facts import Steps as Steps
from ._found import Choice as Choice
from ._make import PlanRequest as PlanRequest
from ._make import make_plan as make_plan
from ._plan import Plan as Plan
from ._space import Cell as Cell
from ._space import slices_in as slices_in
from ._terms import RunLength as RunLength
from ._terms import parse_duration as parse_duration
from ._terms import parse_prices as parse_prices
