"""Optimizers and schedulers as `configure_optimizers` returns them."""

from ._configuration import LRSchedulerConfig as LRSchedulerConfig
from ._configuration import OptimizerConfiguration as OptimizerConfiguration
from ._configuration import read_configuration as read_configuration
from ._configuration import require_compilable as require_compilable
from ._configuration import steps_on_host as steps_on_host
from ._wrapper import LightningOptimizer as LightningOptimizer
