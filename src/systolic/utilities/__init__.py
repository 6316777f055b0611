"""Helpers that users may import: norms of gradients, model summaries, what only the first process does, and the like."""

from .data import move_data_to_device as move_data_to_device
from .data import suggested_max_num_workers as suggested_max_num_workers
from .enums import GradClipAlgorithmType as GradClipAlgorithmType
from .grads import grad_norm as grad_norm
from .parameters import find_shared_parameters as find_shared_parameters
from .parameters import set_shared_parameters as set_shared_parameters
from .parsing import is_picklable as is_picklable
from .rank_zero import rank_zero_deprecation as rank_zero_deprecation
from .rank_zero import rank_zero_info as rank_zero_info
from .rank_zero import rank_zero_only as rank_zero_only
from .rank_zero import rank_zero_warn as rank_zero_warn
