"""How the state of a run, and the work of a step, are divided among the devices: what `Trainer(strategy=...)` takes."""

from ._choice import STRATEGIES as STRATEGIES
from ._choice import choose_strategy as choose_strategy
from ._lightning_names import FSDPStrategy as FSDPStrategy
from ._lightning_names import ModelParallelStrategy as ModelParallelStrategy
from ._model_parallel import ModelParallel as ModelParallel
