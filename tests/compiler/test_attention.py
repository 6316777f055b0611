from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
import torch.nn.functional as F
from compiler.step_check import JAX_CALL, check_step, count
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as imported_directly
from torch.utils.checkpoint import checkpoint

import systolic
from systolic.compiler.kernels import _attention
from systolic.compiler.lowering._context import LoweringContext, lowering_context

pytestmark = pytest.mark.thin(3)


def inputs(
    query: tuple[int, ...] = (2, 4, 5, 8), key: tuple[int, ...] = (2, 4, 6, 8), dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in (query, key, key)]


def check(*tensors: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-6, **options: Any) -> Any:
    """Attention with these options equals eager PyTorch and is one op forward, one backward."""
    compiled = check_step(lambda *xs: F.scaled_dot_product_attention(*xs, **options), *tensors, rtol=rtol, atol=atol)
    assert count(compiled, JAX_CALL) == 2
    return compiled


def some_mask(*shape: int) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.rand(shape) > 0.4


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ((2, 4, 5, 8), (2, 4, 6, 8)),
        ((4, 5, 8), (4, 6, 8)),
        ((5, 8), (6, 8)),
        ((2, 3, 4, 5, 8), (2, 3, 4, 6, 8)),
        ((2, 4, 5, 8), (1, 4, 6, 8)),
        ((2, 4, 5, 8), (2, 1, 6, 8)),
    ],
)
def test_shapes(query: tuple[int, ...], key: tuple[int, ...]) -> None:
    check(*inputs(query, key))


def test_values_of_another_width() -> None:
    query, key, _ = inputs()
    check(query, key, torch.randn(2, 4, 6, 3, requires_grad=True))


@pytest.mark.parametrize("lengths", [(5, 5), (5, 7), (7, 5)])
def test_causal(lengths: tuple[int, int]) -> None:
    check(*inputs((2, 4, lengths[0], 8), (2, 4, lengths[1], 8)), is_causal=True)


@pytest.mark.parametrize("shape", [(5, 6), (1, 6), (2, 1, 5, 6), (2, 4, 5, 6), (2, 1, 1, 6)])
def test_boolean_mask(shape: tuple[int, ...]) -> None:
    check(*inputs(), attn_mask=some_mask(*shape))


@pytest.mark.parametrize("shape", [(5, 6), (2, 1, 5, 6), (2, 4, 5, 6)])
def test_float_mask_and_its_gradient(shape: tuple[int, ...]) -> None:
    check(*inputs(), torch.randn(shape, requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_rows_that_may_look_nowhere(dtype: torch.dtype) -> None:
    mask = some_mask(5, 6)
    mask[2] = False
    check(*inputs(), attn_mask=mask if dtype == torch.bool else torch.zeros(5, 6).masked_fill(~mask, float("-inf")))


def test_scale() -> None:
    check(*inputs(), scale=0.3)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": some_mask(5, 6)}])
def test_grouped_queries(options: dict[str, Any]) -> None:
    check(*inputs((2, 4, 5, 8), (2, 2, 6, 8)), enable_gqa=True, **options)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
@pytest.mark.parametrize("mask", [None, torch.float32, "own"])
def test_half_width(dtype: torch.dtype, tolerance: float, mask: Any) -> None:
    options = {} if mask is None else {"attn_mask": torch.randn(5, 6).to(dtype if mask == "own" else mask)}
    check(*inputs(dtype=dtype), rtol=tolerance, atol=tolerance, **options)


def test_double_precision() -> None:
    check(*inputs(dtype=torch.float64), rtol=1e-12, atol=1e-12, is_causal=True)


def test_autocast() -> None:
    def function(*tensors: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.scaled_dot_product_attention(*tensors, attn_mask=torch.zeros(5, 6))

    check_step(function, *inputs(), rtol=2e-2, atol=2e-2)


def test_double_backward() -> None:
    def penalty(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        gradients = torch.autograd.grad(out.square().sum(), (query, key, value), create_graph=True)
        return sum(g.square().sum() for g in gradients) + out.sum()

    # in double precision: float32's rounding of these sums is above 1e-5 in eager PyTorch, too
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        check_step(penalty, *inputs(dtype=torch.float64), rtol=1e-11, atol=1e-11)


def test_under_checkpointing() -> None:
    def block(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query.tanh(), key, value, is_causal=True).sin()

    check_step(lambda *xs: checkpoint(block, *xs, use_reentrant=False), *inputs())


def test_dropout_keeps_the_expected_share_and_scales_it() -> None:
    query = torch.zeros(1, 8, 64, 4)
    value = torch.eye(64).expand(1, 8, 64, 64)
    step = systolic.jit(lambda q, v: F.scaled_dot_product_attention(q, q, v, dropout_p=0.25))
    first, second = step(query, value).cpu(), step(query, value).cpu()
    assert 0.72 < (first != 0).float().mean() < 0.78
    torch.testing.assert_close(first[first != 0], torch.full_like(first[first != 0], 1 / 64 / 0.75))
    assert (first != second).any()


def test_dropout_of_the_backward_is_that_of_the_forward() -> None:
    def step(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        value = value.detach().requires_grad_()
        out = F.scaled_dot_product_attention(torch.zeros_like(value), torch.zeros_like(value), value, dropout_p=0.5)
        (gradient,) = torch.autograd.grad(out.sum(), value)
        return out.detach(), gradient

    out, gradient = systolic.jit(step)(torch.ones(2, 16, 1))
    torch.testing.assert_close(out.sum().cpu(), gradient.sum().cpu())
    zeros, _ = systolic.jit(lambda v: (F.scaled_dot_product_attention(v, v, v, dropout_p=1.0), v))(torch.ones(2, 16, 1))
    assert (zeros == 0).all()


def test_function_imported_before_the_capture() -> None:
    check_step(lambda *xs: imported_directly(*xs, is_causal=True), *inputs())


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention(train: bool, need_weights: bool) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=True).train(train)
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    x = torch.randn(2, 4, 8, requires_grad=True)
    check_step(lambda a, mask: module(a, a, a, key_padding_mask=mask, need_weights=need_weights)[0], x, padding, module=module)


@pytest.mark.parametrize("train", [True, False])
def test_transformer_encoder(train: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(train)
    x = torch.randn(2, 4, 8, requires_grad=True)
    compiled = check_step(module, x, module=module)
    assert count(compiled, JAX_CALL) == 4


def test_transformer_encoder_without_gradients_takes_no_fast_path() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    module = nn.TransformerEncoder(layer, 2).eval()
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    x = torch.randn(2, 4, 8)

    def evaluate(batch: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return module(batch, src_key_padding_mask=mask)

    with pytest.warns(UserWarning, match="nested tensors"):
        expected = evaluate(x, padding)
    step = systolic.jit(evaluate)
    torch.testing.assert_close(step(x, padding).cpu()[~padding], expected[~padding], rtol=1e-5, atol=1e-6)
    assert count(step, JAX_CALL) == 2


def test_transformers_model_uses_the_op() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=32, n_positions=16, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    model = transformers.GPT2LMHeadModel(config).train()
    tokens = torch.randint(0, 32, (2, 8))
    compiled = check_step(lambda t: model(t, labels=t).loss, tokens, module=model)
    assert count(compiled, JAX_CALL) == 4


def masked(compiled: Any) -> list[bool]:
    """Whether the calls of attention take a mask."""
    from systolic.compiler.kernels import calls_of

    graph = compiled._engine._entries[0].program.captured.graph
    return [mask is not None for _, (_, _, _, mask, _) in calls_of(graph, _attention.plain_attention)]


@pytest.mark.parametrize(
    ("positions", "mask"), [(None, False), ([0, 1, 2, 3, 4, 5, 6, 7], True), ([0, 1, 2, 3, 0, 1, 2, 3], True)]
)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_model_without_its_cache_needs_no_mask(positions: list[int] | None, mask: bool, checkpointing: bool) -> None:
    """Positions that a batch brings may be those of packed sequences; those that the model counts are not."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 16,
        "intermediate_size": 16,
        "vocab_size": 32,
        "max_position_embeddings": 16,
    }
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2, use_cache=False, bos_token_id=0, eos_token_id=0)
    model = transformers.LlamaForCausalLM(config).train()
    if checkpointing:
        # the old name is deprecated in transformers 5
        getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    tokens = torch.randint(0, 32, (2, 8))
    if positions is None:
        compiled = check_step(lambda t: model(t, labels=t).loss, tokens, module=model)
    else:
        given = torch.tensor([positions, positions])
        compiled = check_step(lambda t, p: model(t, labels=t, position_ids=p).loss, tokens, given, module=model)
    assert masked(compiled) == [mask] * (4 if checkpointing else 2)


def plain(*arrays: Any, **options: Any) -> Any:
    return _attention.plain_attention(*arrays, **options)


def attention_of(query: Any, key: Any, value: Any, mask: Any, draw: Any, platform: str, causal: bool) -> Any:
    kernel = {"gpu": _attention._gpu_attention, "tpu": _attention._tpu_attention}[platform]
    with lowering_context(LoweringContext(platform=platform)):
        return kernel(query, key, value, mask, draw, causal=causal, scale=0.4, dropout=0.0)


@pytest.mark.tables
def test_the_call_of_cudnn_means_the_same_as_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    reference = jax.nn.dot_product_attention

    # no GPU is here: XLA computes what cuDNN is asked for, so this holds the arguments to account, not cuDNN
    def without_cudnn(*arrays: Any, implementation: str, **options: Any) -> Any:
        calls.append(implementation)
        return reference(*arrays, implementation="xla", **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", without_cudnn)
    query, key, value = (
        jax.random.normal(jax.random.key(i), shape, jnp.bfloat16)
        for i, shape in enumerate([(2, 4, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8)])
    )
    mask = jnp.asarray(some_mask(2, 1, 6, 6).numpy()).at[0, 0, 1].set(False)
    for given, causal in [(None, False), (None, True), (mask, False)]:
        got = attention_of(query, key, value, given, None, "gpu", causal)
        want = plain(query, key, value, given, None, causal=causal, scale=0.4, dropout=0.0)
        assert got.dtype == want.dtype
        # bfloat16 has 8 bits: values up to 3 differ by 2**-7 * 3 where two ways round differently
        assert jnp.allclose(got.astype(jnp.float32), want.astype(jnp.float32), atol=3e-2)
    assert calls == ["cudnn"] * 3


@pytest.mark.parametrize(
    ("length", "mask", "draw", "kernel"),
    [
        (128, None, False, True),
        (6, None, False, False),
        (128, jnp.bool_, False, True),
        (128, jnp.float16, False, False),
        (128, None, True, True),
    ],
    ids=["in its domain", "a length that is too short", "a mask", "a mask that it does not know", "dropout"],
)
def test_tpu_takes_its_kernel_where_it_has_one(
    length: int, mask: Any, draw: bool, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    monkeypatch.setattr(_attention, "flash_attention", lambda *_, **__: taken.append("kernel"))
    monkeypatch.setattr(_attention, "plain_attention", lambda *_, **__: taken.append("plain"))
    x = jnp.ones((2, 2, length, 8), jnp.bfloat16)
    given = None if mask is None else jnp.ones((2, 1, length, length), mask)
    attention_of(x, x, x, given, jnp.ones(4, jnp.uint32) if draw else None, "tpu", causal=False)
    assert taken == ["kernel" if kernel else "plain"]


def test_gpu_falls_back_where_cudnn_cannot() -> None:
    x = jnp.ones((2, 4, 6, 8))
    assert not _attention._cudnn_supports(x, x, x, None, None, False)
    x = x.astype(jnp.bfloat16)
    assert _attention._cudnn_supports(x, x, x, None, None, False)
    assert not _attention._cudnn_supports(x, x, x, jnp.ones((6, 6)), None, False)
    assert not _attention._cudnn_supports(x, x, x, None, jnp.ones(4), False)
    assert not _attention._cudnn_supports(x[..., :7], x[..., :7], x[..., :7], None, None, False)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"dropout_p": 1.5}, "dropout probability"),
        ({"attn_mask": torch.zeros(5, 6, dtype=torch.long)}, "attn_mask dtype"),
    ],
)
def test_what_pytorch_refuses_is_refused(options: dict[str, Any], match: str) -> None:
    step = systolic.jit(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options))
    with pytest.raises(RuntimeError, match=match):
        step(*[x.detach() for x in inputs()])
