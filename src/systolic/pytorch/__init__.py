"""`systolic.pytorch` is systolic under the paths of `lightning.pytorch`: `from systolic.pytorch.utilities import grad_norm`."""

import importlib
import sys
from typing import Any

from .. import callbacks as callbacks
from .. import core as core
from .. import loggers as loggers
from .. import plugins as plugins
from .. import profilers as profilers
from .. import trainer as trainer
from .. import tuner as tuner
from ..callbacks import Callback as Callback
from ..core import LightningDataModule as LightningDataModule
from ..core import LightningModule as LightningModule
from ..trainer import Trainer as Trainer
from ..utilities.seed import seed_everything as seed_everything
from ._faces import Face, faces
from ._names import MODULES as MODULES
from ._names import home as home
from ._names import ours as ours
from ._names import public_names as public_names

for _module in (callbacks, core, loggers, plugins, profilers, trainer, tuner):
    # `import systolic.pytorch.callbacks` must not make a second copy of it
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
sys.modules |= faces(__name__)


def __getattr__(name: str) -> Any:
    """`cli`, when it is asked for: it needs jsonargparse, which need not be installed; modules that have no file here."""
    if name == "cli":
        return importlib.import_module(f"{__name__}.cli")
    face = sys.modules.get(f"{__name__}.{name}")
    if isinstance(face, Face):
        return face
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
