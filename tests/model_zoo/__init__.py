"""Small models of many kinds, for tests that compare compiled training with eager PyTorch.

A bias before a normalization, and the bias of attention keys, has a gradient that is zero but for rounding; an
optimizer that normalizes gradients would amplify that noise. The models leave such biases out.
"""

from . import _images as _images
from . import _mechanics as _mechanics
from . import _sequences as _sequences
from . import _tabular as _tabular
from ._case import CASES as CASES
from ._case import Case as Case
from ._optimizers import OPTIMIZERS as OPTIMIZERS
from ._optimizers import Lion as Lion
