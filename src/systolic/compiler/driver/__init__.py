"""Run captured steps: find the program that is valid now, compile it, call it, keep its state."""

from ._arguments import values_of as values_of
from ._binding import place_module as place_module
from ._call_arguments import is_written as is_written
from ._capture_lock import CAPTURE_LOCK as CAPTURE_LOCK
from ._check_watch import CheckWatch as CheckWatch
from ._compilations import Compile as Compile
from ._engine import Engine as Engine
from ._jit import JitFunction as JitFunction
from ._jit import jit as jit
from ._layer_scan import longest_loop as longest_loop
from ._module_programs import ModulePrograms as ModulePrograms
from ._multi_step import MultiStepEngine as MultiStepEngine
from ._program import Program as Program
from ._remat import REMATS as REMATS
from ._remat import RematPolicy as RematPolicy
from ._remat import activations_of as activations_of
from ._remat import choose_remat as choose_remat
from ._result import StepResult as StepResult
from ._varying_numbers import VaryingNumbers as VaryingNumbers
