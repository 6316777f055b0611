"""systolic trains PyTorch models on TPUs."""

from .compiler import jit as jit
from .compiler import register_lowering as register_lowering

__version__ = "0.1.0"
