"""LightningCLI: a Trainer, a module and its data from the command line and configuration files.

It needs jsonargparse: `pip install "systolic[cli]"`.
"""

try:
    import jsonargparse as _jsonargparse
except ImportError as error:
    raise ModuleNotFoundError(
        'LightningCLI needs jsonargparse, which is not installed. Install it with `pip install "systolic[cli]"`.',
        name="jsonargparse",
    ) from error

# documented as public, and yet not in jsonargparse's __all__
from jsonargparse import ActionConfigFile as ActionConfigFile  # pyright: ignore[reportPrivateImportUsage]
from jsonargparse import ArgumentParser as ArgumentParser
from jsonargparse import Namespace as Namespace
from jsonargparse.typing import class_from_function as class_from_function

from ...core import instantiate_module as instantiate_module
from ._instantiation import instantiate_class as instantiate_class
from ._lightning_cli import LightningCLI as LightningCLI
from ._parser import LightningArgumentParser as LightningArgumentParser
from ._save_config import SaveConfigCallback as SaveConfigCallback
from ._types import ArgsType as ArgsType
from ._types import LRSchedulerCallable as LRSchedulerCallable
from ._types import LRSchedulerType as LRSchedulerType
from ._types import LRSchedulerTypeTuple as LRSchedulerTypeTuple
from ._types import LRSchedulerTypeUnion as LRSchedulerTypeUnion
from ._types import OptimizerCallable as OptimizerCallable
from ._types import ReduceLROnPlateau as ReduceLROnPlateau

del _jsonargparse
