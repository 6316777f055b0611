"""PyTorch functions as XLA programs. Knows nothing of the Trainer."""

from ._attention_choice import PlainAttention as PlainAttention
from ._attention_choice import plain_attention_calls as plain_attention_calls
from ._capture import Captured as Captured
from ._check_watch import CheckWatch as CheckWatch
from ._engine import Compile as Compile
from ._engine import Engine as Engine
from ._errors import CaptureError as CaptureError
from ._errors import DataDependentError as DataDependentError
from ._errors import HiddenRandomnessError as HiddenRandomnessError
from ._errors import RecompileLimitError as RecompileLimitError
from ._errors import UnsupportedOpError as UnsupportedOpError
from ._flops import model_flops as model_flops
from ._grouped import GroupedRuns as GroupedRuns
from ._jax_op import jax_op as jax_op
from ._jit import JitFunction as JitFunction
from ._jit import jit as jit
from ._modules import LINE as LINE
from ._modules import SCOPE as SCOPE
from ._program import Program as Program
from ._scope import scope_with_globals as scope_with_globals
from ._slots import Slot as Slot
from ._step_result import StepResult as StepResult
from ._train_state import TrainState as TrainState
from .lowering import register_lowering as register_lowering
