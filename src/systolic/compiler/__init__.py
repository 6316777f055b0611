"""PyTorch functions as XLA programs. Knows nothing of the Trainer."""

from ._errors import CaptureError as CaptureError
from ._errors import DataDependentError as DataDependentError
from ._errors import HiddenRandomnessError as HiddenRandomnessError
from ._errors import RecompileLimitError as RecompileLimitError
from ._errors import UnsupportedOpError as UnsupportedOpError
from .capture import Captured as Captured
from .capture import Slot as Slot
from .capture import TrainState as TrainState
from .capture import scope_with_globals as scope_with_globals
from .driver import CheckWatch as CheckWatch
from .driver import Compile as Compile
from .driver import Engine as Engine
from .driver import JitFunction as JitFunction
from .driver import MultiStepEngine as MultiStepEngine
from .driver import Program as Program
from .driver import StepResult as StepResult
from .driver import jit as jit
from .kernels import jax_op as jax_op
from .lowering import LINE as LINE
from .lowering import SCOPE as SCOPE
from .lowering import register_lowering as register_lowering
from .passes import PlainAttention as PlainAttention
from .passes import model_flops as model_flops
from .passes import plain_attention_calls as plain_attention_calls
