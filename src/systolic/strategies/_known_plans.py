"""Plans for tensor parallelism: those that models of transformers bring along, and ours for families that bring none."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping

from torch import nn

from ..sharding import STYLES, Plan

# by the class of a block: its layers. The first product of a pair is split by columns and the second by rows, so that one
# sum over the cores is due after the second (Shoeybi et al. 2019, Megatron-LM, section 3).
_BLOCKS: dict[str, dict[str, str]] = {
    "GPT2Block": {"attn.c_attn": "colwise", "attn.c_proj": "rowwise", "mlp.c_fc": "colwise", "mlp.c_proj": "rowwise"},
    "BertLayer": {
        "attention.self.query": "colwise", "attention.self.key": "colwise", "attention.self.value": "colwise",
        "attention.output.dense": "rowwise", "intermediate.dense": "colwise", "output.dense": "rowwise",
    },
    "T5Block": {
        **{f"layer.*.{kind}.{name}": "colwise" for kind in ("SelfAttention", "EncDecAttention") for name in "qkv"},
        **{f"layer.*.{kind}.o": "rowwise" for kind in ("SelfAttention", "EncDecAttention")},
        "layer.*.DenseReluDense.wi": "colwise", "layer.*.DenseReluDense.wi_0": "colwise",
        "layer.*.DenseReluDense.wi_1": "colwise", "layer.*.DenseReluDense.wo": "rowwise",
    },
    "ViTLayer": {
        "attention.q_proj": "colwise", "attention.k_proj": "colwise", "attention.v_proj": "colwise",
        "attention.o_proj": "rowwise", "mlp.fc1": "colwise", "mlp.fc2": "rowwise",
    },
    "TransformerEncoderLayer": {
        "self_attn.in_proj_weight": "colwise", "self_attn.in_proj_bias": "colwise", "self_attn.out_proj": "rowwise",
        "linear1": "colwise", "linear2": "rowwise",
    },
}  # fmt: skip
_WHISPER = {
    **{f"{kind}.{name}_proj": "colwise" for kind in ("self_attn", "encoder_attn") for name in "qkv"},
    **{f"{kind}.out_proj": "rowwise" for kind in ("self_attn", "encoder_attn")},
    "fc1": "colwise",
    "fc2": "rowwise",
}
_BLOCKS["WhisperEncoderLayer"] = _BLOCKS["WhisperDecoderLayer"] = _WHISPER

# in models with such blocks: embeddings of tokens, whose rows are the vocabulary
_VOCABULARIES = ("wte", "word_embeddings", "shared", "embed_tokens")


def known_plan(module: nn.Module) -> Plan:
    """The plan for a module: of the models in it that have one, and of the blocks that are known here; may be empty.

    Args:
        module: the LightningModule, with its models below it.
    """
    plan: dict[str, str] = {}
    for name, brought in _brought(module):
        prefix = f"{name}." if name else ""
        plan |= {prefix + pattern: _understood(prefix + pattern, style) for pattern, style in brought.items()}
    own: dict[str, str] = {}
    for name, block in module.named_modules():
        layers = _BLOCKS.get(type(block).__name__, {})
        own |= {f"{name}.{pattern}" if name else pattern: style for pattern, style in layers.items()}
    if own and not plan:
        own |= {n: "embedding_rowwise" for n, m in module.named_modules() if _is_vocabulary(n, m)}
    return plan | own


def transposed_weights(module: nn.Module) -> frozenset[str]:
    """Names of weights that are [in, out]: transformers' `Conv1D`, which GPT-2 is made of."""
    return frozenset(f"{name}.weight" for name, layer in module.named_modules() if type(layer).__name__ == "Conv1D")


def _brought(module: nn.Module) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Outermost models with a plan: it names the layers of those inside, too."""
    outer: list[str] = []
    for name, model in module.named_modules():
        plan = getattr(model, "tp_plan", None)  # an object of transformers
        if isinstance(plan, Mapping) and plan and not any(name.startswith(f"{one}.") or not one for one in outer):
            outer.append(name)
            yield name, plan


def _understood(pattern: str, style: str) -> str:
    if style in STYLES:
        return style
    warnings.warn(
        f"The model's plan has the style {style!r} for {pattern!r}, which describes work that a core does by itself. These "
        'parameters stay whole along the axis "tensor"; give a `plan` to split them.',
        stacklevel=2,
    )
    return "replicate"


def _is_vocabulary(name: str, layer: nn.Module) -> bool:
    is_large = isinstance(layer, nn.Embedding) and math.prod(layer.weight.shape) > 0
    return is_large and name.rpartition(".")[2] in _VOCABULARIES
