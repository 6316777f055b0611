"""Rewrite and analyse captured graphs before they are lowered."""

from ._attention_choice import PlainAttention as PlainAttention
from ._attention_choice import plain_attention_calls as plain_attention_calls
from ._cross_entropy import join_cross_entropy as join_cross_entropy
from ._flops import model_flops as model_flops
from ._head_layout import with_heads_in_place as with_heads_in_place
from ._rewrites import rewrite_bias_corrections as rewrite_bias_corrections
