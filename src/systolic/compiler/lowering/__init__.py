"""Aten ops as JAX functions. Importing this package fills the table."""

from ._alike_part import AlikePart as AlikePart
from ._alike_part import Part as Part
from ._checks import Check as Check
from ._checks import Checks as Checks
from ._checks import StepCheck as StepCheck
from ._checks import is_fine as is_fine
from ._checks import no_outcome as no_outcome
from ._context import LoweringContext as LoweringContext
from ._interpret import LoopStep as LoopStep
from ._interpret import Step as Step
from ._interpret import inputs_of as inputs_of
from ._interpret import interpret as interpret
from ._layer_loop import Carried as Carried
from ._layer_loop import LayerLoop as LayerLoop
from ._made_once import ReadWrites as ReadWrites
from ._node_meta import BACKWARD as BACKWARD
from ._node_meta import LINE as LINE
from ._node_meta import OPTIMIZER as OPTIMIZER
from ._node_meta import RECOMPUTED as RECOMPUTED
from ._node_meta import SCOPE as SCOPE
from ._node_meta import UPDATE as UPDATE
from ._node_meta import is_backward as is_backward
from ._stash import Call as Call
from ._table import find_lowering as find_lowering
from ._table import lowered_ops as lowered_ops
from ._table import lowers as lowers
from ._table import register_lowering as register_lowering
from ._value_placement import TableLookup as TableLookup
from ._value_placement import ValuePlacement as ValuePlacement

from . import (  # isort: skip
    _adaptive_pooling as _adaptive_pooling,
    _batch_norm as _batch_norm,
    _convolution as _convolution,
    _embedding as _embedding,
    _embedding_bag as _embedding_bag,
    _fft as _fft,
    _grid_sampling as _grid_sampling,
    _indexing as _indexing,
    _linalg as _linalg,
    _loss as _loss,
    _normalization as _normalization,
    _padding as _padding,
    _pair_loss as _pair_loss,
    _pooling as _pooling,
    _random as _random,
    _scatter as _scatter,
    _unpooling as _unpooling,
    _upsampling as _upsampling,
)
from . import _activation as _activation
from . import _comparison as _comparison
from . import _complex as _complex
from . import _creation as _creation
from . import _distance as _distance
from . import _extremum as _extremum
from . import _group_norm as _group_norm
from . import _grouped as _grouped
from . import _layout as _layout
from . import _matmul as _matmul
from . import _pointwise as _pointwise
from . import _reduction as _reduction
from . import _scan as _scan
from . import _segments as _segments
from . import _softmax as _softmax
from . import _sort as _sort
from . import _special as _special
from . import _unary as _unary
from . import _view_writes as _view_writes
from . import _views as _views
from . import _window as _window
