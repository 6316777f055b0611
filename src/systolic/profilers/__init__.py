"""Profilers, which say where the time goes: `Trainer(profiler="simple" | "advanced" | "pytorch" | "xla")`."""

from ._choice import make_profiler as make_profiler
from .advanced import AdvancedProfiler as AdvancedProfiler
from .profiler import PassThroughProfiler as PassThroughProfiler
from .profiler import Profiler as Profiler
from .pytorch import PyTorchProfiler as PyTorchProfiler
from .simple import SimpleProfiler as SimpleProfiler
from .xla import THROTTLE as THROTTLE
from .xla import XLAProfiler as XLAProfiler
