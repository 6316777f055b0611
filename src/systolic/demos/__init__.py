"""Small modules and datasets, at Lightning's names: for bug reports, and to try an option."""

from .boring_classes import BoringDataModule as BoringDataModule
from .boring_classes import BoringModel as BoringModel
from .boring_classes import DemoModel as DemoModel
from .boring_classes import ManualOptimBoringModel as ManualOptimBoringModel
from .boring_classes import RandomDataset as RandomDataset
from .boring_classes import RandomDictDataset as RandomDictDataset
from .boring_classes import RandomIterableDataset as RandomIterableDataset
from .boring_classes import RandomIterableDatasetWithLen as RandomIterableDatasetWithLen
