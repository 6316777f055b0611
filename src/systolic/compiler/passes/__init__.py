"""Rewrite and analyse captured graphs before they are lowered."""

from ._activations import Activations as Activations
from ._activations import activations as activations
from ._adam_update import rewrite_adam_updates as rewrite_adam_updates
from ._attention_choice import PlainAttention as PlainAttention
from ._attention_choice import plain_attention_calls as plain_attention_calls
from ._bounded_rules import rule_of as rule_of
from ._bounded_sizes import with_bounded_sizes as with_bounded_sizes
from ._computed_again import with_masks_by_shape as with_masks_by_shape
from ._cross_entropy import join_cross_entropy as join_cross_entropy
from ._flops import model_flops as model_flops
from ._head_layout import with_heads_in_place as with_heads_in_place
from ._held_back import hold_back_recomputations as hold_back_recomputations
from ._image_products import with_images_in_place as with_images_in_place
from ._large_products import has_large_products as has_large_products
from ._layer_loops import layer_loops as layer_loops
from ._layer_order import layer_order as layer_order
from ._rematerialise import DOTS as DOTS
from ._rematerialise import Remat as Remat
from ._rematerialise import has_backward as has_backward
from ._rematerialise import rematerialise as rematerialise
from ._rewrites import drop_unused as drop_unused
from ._rewrites import rewrite_bias_corrections as rewrite_bias_corrections
from ._row_order import with_rows_by_batch as with_rows_by_batch
from ._scalar_vectors import with_scalars_in_vectors as with_scalars_in_vectors
from ._split_state import split_state as split_state
