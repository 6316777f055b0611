"""Functions of PyTorch that are captured as one op each, with their lowerings."""

from ._assignment import assigning_inside as assigning_inside
from ._assignment import linear_sum_assignment as linear_sum_assignment
from ._associative_scan import scanning_in_pairs as scanning_in_pairs
from ._attention import plain_attention as plain_attention
from ._attention import scaled_dot_product_attention as scaled_dot_product_attention
from ._batch_norm import averaging_all_batches as averaging_all_batches
from ._ctc_loss import ctc_loss as ctc_loss
from ._jax_op import Kind as Kind
from ._jax_op import calls_of as calls_of
from ._jax_op import described as described
from ._jax_op import jax_op as jax_op
from ._jax_op import numbering_calls as numbering_calls
from ._losses import gaussian_nll_loss as gaussian_nll_loss
from ._recurrent import KINDS as KINDS
from ._recurrent import fresh_flat_weights as fresh_flat_weights
from ._recurrent import network as network
from ._recurrent import refuse_packed as refuse_packed
from ._recurrent import refusing_packed as refusing_packed
from ._splash_attention import LANES as LANES
from ._splash_attention import LARGEST_FEATURES as LARGEST_FEATURES
from ._splash_attention import WITHOUT_KERNELS as WITHOUT_KERNELS
from ._splash_attention import Shaped as Shaped
from ._splash_attention import splash_supports as splash_supports
from ._within import one_hot as one_hot
