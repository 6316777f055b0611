"""How the state of a run, and the work of a step, are divided among the devices: what `Trainer(strategy=...)` takes."""

from ._choice import STRATEGIES as STRATEGIES
from ._choice import choose_strategy as choose_strategy
from ._choice import name_of_strategy as name_of_strategy
from ._data_parallel import DDPStrategy as DDPStrategy
from ._data_parallel import SingleDeviceStrategy as SingleDeviceStrategy
from ._data_parallel import checkpoint_io_of as checkpoint_io_of
from ._lightning_names import FSDPStrategy as FSDPStrategy
from ._lightning_names import ModelParallelStrategy as ModelParallelStrategy
from ._model_parallel import ModelParallel as ModelParallel
