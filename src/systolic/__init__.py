"""systolic trains PyTorch models on TPUs: Lightning's API, one XLA program a step, one process."""

from ._collector import collector_paused as _collector_paused

with _collector_paused():
    from . import callbacks as callbacks
    from . import loggers as loggers
    from . import profilers as profilers
    from .callbacks import Callback as Callback
    from .compiler import CaptureError as CaptureError
    from .compiler import DataDependentError as DataDependentError
    from .compiler import HiddenRandomnessError as HiddenRandomnessError
    from .compiler import RecompileLimitError as RecompileLimitError
    from .compiler import UnsupportedOpError as UnsupportedOpError
    from .compiler import host as host
    from .compiler import jax_op as jax_op
    from .compiler import jit as jit
    from .compiler import register_lowering as register_lowering
    from .core import LightningDataModule as LightningDataModule
    from .core import LightningModule as LightningModule
    from .data import CombinedLoader as CombinedLoader
    from .exceptions import MisconfigurationException as MisconfigurationException
    from .exceptions import OutOfMemoryError as OutOfMemoryError
    from .exceptions import OutOfRangeError as OutOfRangeError
    from .trainer import Trainer as Trainer
    from .utilities.seed import seed_everything as seed_everything

    from . import pytorch as pytorch  # isort: skip, it shows the names above

__version__ = "0.1.0"
