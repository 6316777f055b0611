"""The hand-written JAX steps that systolic is compared with compute what the PyTorch models do: loss and gradients, in float32."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import Mesh
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from reference import bert, convnext, gpt2, llama, lstm, parts, t5, torch_models, unet, vit  # noqa: E402

Batch = tuple[torch.Tensor, ...]
Pick = Callable[[torch.Tensor], jax.Array]
"""Takes a parameter's value, or its gradient."""


@dataclass(frozen=True)
class Case:
    """A model in PyTorch, and the same by hand.

    Attributes:
        loss: PyTorch's, of a batch.
        by_hand: JAX's, of the parameters, the same batch and a key.
        tree: the model's parameters as `by_hand` wants them.
        batch: mostly tokens and targets, or images and labels.
        shown: the batch as `by_hand` wants it.
    """

    loss: Callable[..., torch.Tensor]
    by_hand: parts.Loss
    tree: Callable[[Pick], Any]
    batch: Batch
    shown: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor


def value(parameter: torch.Tensor) -> jax.Array:
    return jnp.asarray(parameter.detach().numpy())


def gradient(parameter: torch.Tensor) -> jax.Array:
    assert parameter.grad is not None
    return jnp.asarray(parameter.grad.numpy())


def linear(layer: nn.Linear, pick: Pick) -> Any:
    return {"w": pick(layer.weight).T, "b": pick(layer.bias)}


def convolution(layer: nn.Conv2d, pick: Pick) -> Any:
    return {"w": pick(layer.weight).transpose(2, 3, 1, 0), "b": pick(layer.bias)}


def norm(layer: nn.LayerNorm | nn.GroupNorm, pick: Pick) -> Any:
    return {"scale": pick(layer.weight), "bias": pick(layer.bias)}


def block(pick: Pick, norms: Sequence[nn.LayerNorm], qkv: Any, out: nn.Linear, up: nn.Linear, down: nn.Linear) -> Any:
    """A transformer's layer; `qkv` as the references have it."""
    first, second = (norm(one, pick) for one in norms)
    rest = {name: linear(layer, pick) for name, layer in (("out", out), ("up", up), ("down", down))}
    return {"n1": first, "n2": second, "qkv": qkv, **rest}


def texts(words: int, padded: bool) -> Batch:
    """Sixteen rows of 128 tokens; padded ones end in zeros, of different lengths, and predict a seventh of the rest."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, words, (16, 128), generator=generator)
    targets = torch.randint(1, words, (16, 128), generator=generator)
    if padded:
        lengths = torch.randint(20, 129, (16, 1), generator=generator)
        tokens = torch.where(torch.arange(128) < lengths, tokens, 0)
        predicted = (torch.rand(16, 128, generator=generator) < 1 / 7) & (tokens != 0)
        targets = torch.where(predicted, targets, -100)
    return tokens, targets


def pictures(size: int) -> Batch:
    """Sixteen images of ten classes."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(16, 3, size, size, generator=generator), torch.randint(0, 10, (16,), generator=generator)


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """Images and labels as the references want them."""
    return tensor.movedim(1, 3) if tensor.dim() == 4 else tensor.int()


def small_gpt2(splash: bool) -> gpt2.Sizes:
    return gpt2.Sizes(
        layers=2, dim=128, heads=2, length=128, vocabulary=96, dropout=0.0, splash=splash, dtype=jnp.float32, interpret=True
    )


def transformers_gpt2_case(splash: bool) -> Case:
    from tpu_contests import Gpt2

    sizes = small_gpt2(splash)
    module = Gpt2(sizes)

    def columns(layer: Any, pick: Pick) -> Any:
        """Its weights are [in, out], as the references' are."""
        return {"w": pick(layer.weight), "b": pick(layer.bias)}

    def layer(b: Any, pick: Pick) -> Any:
        parts = {name: jnp.split(found, 3, -1) for name, found in columns(b.attn.c_attn, pick).items()}
        qkv = [{"w": w, "b": c} for w, c in zip(parts["w"], parts["b"], strict=True)]
        rest = {"out": b.attn.c_proj, "up": b.mlp.c_fc, "down": b.mlp.c_proj}
        norms = {"n1": norm(b.ln_1, pick), "n2": norm(b.ln_2, pick)}
        return {**norms, "qkv": qkv, **{name: columns(found, pick) for name, found in rest.items()}}

    def tree(pick: Pick) -> Any:
        found = module.model.transformer
        return {
            "tokens": pick(found.wte.weight),
            "positions": pick(found.wpe.weight),
            "blocks": [layer(b, pick) for b in found.h],
            "norm": norm(found.ln_f, pick),
        }

    by_hand = partial(gpt2.loss_of, sizes=sizes)
    return Case(lambda *batch: module.training_step(batch, 0), by_hand, tree, texts(96, padded=False), torch.Tensor.int)


def gpt2_case() -> Case:
    sizes = small_gpt2(splash=True)
    model = torch_models.GPT2(sizes)

    def layer(b: Any, pick: Pick) -> Any:
        weights, biases = (jnp.split(pick(p), 3) for p in (b.attention.qkv.weight, b.attention.qkv.bias))
        qkv = [{"w": w.T, "b": c} for w, c in zip(weights, biases, strict=True)]
        return block(pick, (b.norm1, b.norm2), qkv, b.attention.out, b.up, b.down)

    def tree(pick: Pick) -> Any:
        return {
            "tokens": pick(model.tokens.weight),
            "positions": pick(model.positions.weight),
            "blocks": [layer(b, pick) for b in model.blocks],
            "norm": norm(model.norm, pick),
        }

    return Case(
        lambda *batch: model.training_step(batch, 0),
        partial(gpt2.loss_of, sizes=sizes),
        tree,
        texts(96, padded=False),
        torch.Tensor.int,
    )


def bert_case(splash: bool) -> Case:
    from transformers import BertConfig, BertForMaskedLM

    sizes = bert.Sizes(
        layers=2, dim=128, heads=2, length=128, vocabulary=96, dropout=0.0, splash=splash, dtype=jnp.float32, interpret=True
    )
    model: Any = BertForMaskedLM(
        BertConfig(
            vocab_size=96,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=512,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )  # fmt: skip
    )

    def layer(b: Any, pick: Pick) -> Any:
        attention, result = b.attention, b.attention.output
        qkv = [linear(getattr(attention.self, name), pick) for name in ("query", "key", "value")]
        norms = (result.LayerNorm, b.output.LayerNorm)
        return block(pick, norms, qkv, result.dense, b.intermediate.dense, b.output.dense)

    def tree(pick: Pick) -> Any:
        found, head = model.bert.embeddings, model.cls.predictions
        transform = head.transform
        return {
            "tokens": pick(found.word_embeddings.weight),
            "positions": pick(found.position_embeddings.weight),
            "kinds": pick(found.token_type_embeddings.weight),
            "norm": norm(found.LayerNorm, pick),
            "blocks": [layer(b, pick) for b in model.bert.encoder.layer],
            "head": {"dense": linear(transform.dense, pick), "norm": norm(transform.LayerNorm, pick), "bias": pick(head.bias)},
        }

    def loss(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return model(input_ids=tokens, attention_mask=(tokens != 0).long(), labels=targets).loss

    return Case(loss, partial(bert.loss_of, sizes=sizes), tree, texts(96, padded=True), torch.Tensor.int)


def vit_case(splash: bool) -> Case:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = vit.Sizes(
        layers=2, dim=128, heads=2, image=48, patch=4, classes=10, splash=splash, dtype=jnp.float32, interpret=True
    )
    model: Any = ViTForImageClassification(
        ViTConfig(
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=512,
            image_size=48,
            patch_size=4,
            num_labels=10,
        )  # fmt: skip
    )

    def layer(b: Any, pick: Pick) -> Any:
        qkv = [linear(getattr(b.attention, f"{name}_proj"), pick) for name in "qkv"]
        return block(pick, (b.layernorm_before, b.layernorm_after), qkv, b.attention.o_proj, b.mlp.fc1, b.mlp.fc2)

    def tree(pick: Pick) -> Any:
        found = model.vit.embeddings
        projection = found.patch_embeddings.projection
        return {
            # a patch is [height, width, colour] there
            "patches": {"w": pick(projection.weight).transpose(2, 3, 1, 0).reshape(48, 128), "b": pick(projection.bias)},
            "class": pick(found.cls_token)[0, 0],
            "positions": pick(found.position_embeddings)[0],
            "blocks": [layer(b, pick) for b in model.vit.layers],
            "norm": norm(model.vit.layernorm, pick),
            "head": linear(model.classifier, pick),
        }

    def loss(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return model(pixel_values=images, labels=labels).loss

    return Case(loss, partial(vit.loss_of, sizes=sizes), tree, pictures(48), channels_last)


def convnext_case() -> Case:
    from tpu_contests import ConvNext

    sizes = convnext.Sizes(depths=(1, 2), widths=(24, 40), image=64, classes=10, dtype=jnp.float32)
    model = ConvNext(sizes, scale=1.0)

    def block(found: Any, pick: Pick) -> Any:
        products = {"up": linear(found.pwconv1, pick), "down": linear(found.pwconv2, pick)}
        rest = {"norm": norm(found.layernorm, pick), "scale": pick(found.layer_scale_parameter)}
        return {"deep": convolution(found.dwconv, pick), **rest, **products}

    def stage(found: Any, pick: Pick) -> Any:
        own: Any = {"blocks": [block(layer, pick) for layer in found.layers]}
        if found.downsampling_layer:
            before, down = found.downsampling_layer
            own |= {"norm": norm(before, pick), "down": convolution(down, pick)}
        return own

    def tree(pick: Pick) -> Any:
        whole = model.model.convnext
        stem, first = whole.embeddings.patch_embeddings, whole.embeddings.layernorm
        ends = {"stem": convolution(stem, pick), "norm": norm(first, pick), "last": norm(whole.layernorm, pick)}
        stages = [stage(found, pick) for found in whole.encoder.stages]
        return {**ends, "stages": stages, "head": linear(model.model.classifier, pick)}

    by_hand = partial(convnext.loss_of, sizes=sizes)
    return Case(lambda *given: model.training_step(given, 0), by_hand, tree, pictures(64), channels_last)


def lstm_case() -> Case:
    from tpu_contests import Lstm

    sizes = lstm.Sizes(width=32, vocabulary=96, dropout=0.0, dtype=jnp.float32)
    model = Lstm(sizes)

    def gates(kind: str, layer: int, pick: Pick) -> Any:
        weight, bias = (getattr(model.lstm, f"{name}_{kind}_l{layer}") for name in ("weight", "bias"))
        return {"w": pick(weight).T, "b": pick(bias)}

    def tree(pick: Pick) -> Any:
        layers = [{"input": gates("ih", n, pick), "state": gates("hh", n, pick)} for n in range(sizes.layers)]
        return {"tokens": pick(model.tokens.weight), "layers": layers, "head": linear(model.head, pick)}

    batch = texts(96, padded=False)
    return Case(lambda *given: model.training_step(given, 0), partial(lstm.loss_of, sizes=sizes), tree, batch, torch.Tensor.int)


def llama_case() -> Case:
    from tpu_contests import Llama

    small: dict[str, Any] = {"layers": 2, "dim": 256, "heads": 4, "shared": 2, "inner": 320, "length": 128, "vocabulary": 96}
    sizes = llama.Sizes(**small, dtype=jnp.float32, interpret=True)
    model = Llama(sizes)

    def layer(b: Any, pick: Pick) -> Any:
        attention, found = b.self_attn, b.mlp
        products = {
            "query": attention.q_proj,
            "key": attention.k_proj,
            "value": attention.v_proj,
            "out": attention.o_proj,
            "gate": found.gate_proj,
            "up": found.up_proj,
            "down": found.down_proj,
        }
        norms = {"n1": pick(b.input_layernorm.weight), "n2": pick(b.post_attention_layernorm.weight)}
        return norms | {name: pick(product.weight).T for name, product in products.items()}

    def tree(pick: Pick) -> Any:
        found = model.model.model
        blocks = [layer(b, pick) for b in found.layers]
        return {"tokens": pick(found.embed_tokens.weight), "blocks": blocks, "norm": pick(found.norm.weight)}

    batch = texts(96, padded=False)
    return Case(
        lambda *given: model.training_step(given, 0), partial(llama.loss_of, sizes=sizes), tree, batch, torch.Tensor.int
    )


def t5_case() -> Case:
    from tpu_contests import T5

    small: dict[str, Any] = {"layers": 2, "dim": 128, "heads": 2, "inner": 320, "length": 128, "targets": 40, "vocabulary": 96}
    sizes = t5.Sizes(**small, dropout=0.0, dtype=jnp.float32)
    model = T5(sizes)

    def attention(layer: Any, found: Any, pick: Pick) -> Any:
        qkv = [pick(product.weight).T for product in (found.q, found.k, found.v)]
        return {"norm": pick(layer.layer_norm.weight), "qkv": qkv, "out": pick(found.o.weight).T}

    def stack(found: Any, pick: Pick) -> Any:
        blocks = []
        for block in found.block:
            first, *cross, last = block.layer
            dense = last.DenseReluDense
            forward = {"up": pick(dense.wi.weight).T, "down": pick(dense.wo.weight).T}
            own = {"self": attention(first, first.SelfAttention, pick)}
            if cross:
                own["cross"] = attention(cross[0], cross[0].EncDecAttention, pick)
            blocks.append({**own, "forward": {"norm": pick(last.layer_norm.weight), **forward}})
        near = pick(found.block[0].layer[0].SelfAttention.relative_attention_bias.weight)
        return {"near": near, "blocks": blocks, "norm": pick(found.final_layer_norm.weight)}

    def tree(pick: Pick) -> Any:
        whole = model.model
        stacks = {"encoder": stack(whole.encoder, pick), "decoder": stack(whole.decoder, pick)}
        return {"tokens": pick(whole.shared.weight), **stacks}

    tokens, targets = texts(96, padded=True)
    batch = tokens, targets[:, : sizes.targets].contiguous()
    return Case(lambda *given: model.training_step(given, 0), partial(t5.loss_of, sizes=sizes), tree, batch, torch.Tensor.int)


def unet_case() -> Case:
    from tpu_contests import UNet

    sizes = unet.Sizes(widths=(16, 32, 32), groups=8, image=16, dtype=jnp.float32)
    model = UNet(sizes)

    def block(found: Any, pick: Pick) -> Any:
        own = {name: norm(getattr(found, name), pick) for name in ("norm1", "norm2")}
        own |= {name: convolution(getattr(found, name), pick) for name in ("conv1", "conv2")}
        short = {} if found.conv_shortcut is None else {"short": convolution(found.conv_shortcut, pick)}
        return {**own, **short, "time": linear(found.time_emb_proj, pick)}

    def attention(found: Any, pick: Pick) -> Any:
        qkv = [linear(layer, pick) for layer in (found.to_q, found.to_k, found.to_v)]
        return {"norm": norm(found.group_norm, pick), "qkv": qkv, "out": linear(found.to_out[0], pick)}

    def stage(found: Any, move: Any, pick: Pick) -> Any:
        looks = [attention(one, pick) for one in getattr(found, "attentions", [])]
        own = {"blocks": [block(one, pick) for one in found.resnets], "looks": looks}
        return {**own, "move": convolution(move[0].conv, pick)} if move else own

    def tree(pick: Pick) -> Any:
        net = model.model
        time = [linear(layer, pick) for layer in (net.time_embedding.linear_1, net.time_embedding.linear_2)]
        ends = {"first": convolution(net.conv_in, pick), "last": convolution(net.conv_out, pick)}
        down = [stage(found, found.downsamplers, pick) for found in net.down_blocks]
        up = [stage(found, found.upsamplers, pick) for found in net.up_blocks]
        middle = stage(net.mid_block, None, pick)
        return {**ends, "time": time, "down": down, "middle": middle, "up": up, "norm": norm(net.conv_norm_out, pick)}

    generator = torch.Generator().manual_seed(1)
    images, noise = torch.randn(2, 16, 3, 16, 16, generator=generator)
    batch = images, torch.randint(0, 1000, (16,), generator=generator), noise
    return Case(lambda *given: model.training_step(given, 0), partial(unet.loss_of, sizes=sizes), tree, batch, channels_last)


CASES: dict[str, Callable[[], Case]] = {
    "gpt2": gpt2_case,
    "gpt2 of transformers, plain attention": lambda: transformers_gpt2_case(False),
    "gpt2 of transformers, splash attention": lambda: transformers_gpt2_case(True),
    "bert, plain attention": lambda: bert_case(False),
    "bert, splash attention": lambda: bert_case(True),
    "convnext": convnext_case,
    "llama": llama_case,
    "lstm": lstm_case,
    "t5": t5_case,
    "unet": unet_case,
    "vit, plain attention": lambda: vit_case(False),
    "vit, splash attention": lambda: vit_case(True),
}


# issue 15: what we are compared with is the same model
@pytest.mark.tables
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]()
    expected = case.loss(*case.batch)
    expected.backward()

    step = jax.jit(parts.gradients_of(case.by_hand, Mesh(np.array(jax.devices("cpu")[:8]), ("data",)), len(case.batch)))
    inputs = [jnp.asarray(case.shown(t).numpy()) for t in case.batch]
    found, gradients = step(case.tree(value), *inputs, jax.random.key(0, impl="rbg"))

    assert float(found) == pytest.approx(expected.item(), rel=1e-5)
    wanted = jax.tree.leaves(case.tree(gradient))
    largest = max(float(abs(w).max()) for w in wanted)  # a key's bias has no gradient: there both have rounding only
    for (path, ours), theirs in zip(jax.tree.leaves_with_path(gradients), wanted, strict=True):
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6 * largest, err_msg=name)
