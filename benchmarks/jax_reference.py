"""The same models written by hand in JAX + optax: what an expert would write for one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from reference import bert, lstm

Params = Any

# without YNNPACK, as an expert would: it makes this ResNet-18's step about 1.7 times as long
OPTIONS: dict[str, Any] = {"xla_cpu_experimental_ynn_fusion_type": ""}


def _dense(params: Params, x: jax.Array) -> jax.Array:
    return x @ params["w"] + params["b"]


def _init_dense(rng: np.random.Generator, inputs: int, outputs: int) -> Params:
    bound = 1 / np.sqrt(inputs)
    return {
        "w": jnp.asarray(rng.uniform(-bound, bound, (inputs, outputs)), jnp.float32),
        "b": jnp.asarray(rng.uniform(-bound, bound, outputs), jnp.float32),
    }


def mlp(rng: np.random.Generator) -> tuple[Params, Callable[..., Any]]:
    params = [_init_dense(rng, i, o) for i, o in ((64, 128), (128, 128), (128, 10))]

    def apply(params: Params, state: Any, x: jax.Array, key: jax.Array) -> tuple[jax.Array, Any]:
        h = jax.nn.relu(_dense(params[0], x))
        h = jax.nn.relu(_dense(params[1], h))
        return _dense(params[2], h), state

    return (params, None), apply


def resnet18(rng: np.random.Generator) -> tuple[Params, Callable[..., Any]]:
    """NHWC, as XLA likes it."""

    def conv(i: int, o: int, k: int) -> jax.Array:
        return jnp.asarray(rng.normal(0, np.sqrt(2 / (k * k * o)), (k, k, i, o)), jnp.float32)

    def norm(c: int) -> tuple[Params, Any]:
        return {"scale": jnp.ones(c), "bias": jnp.zeros(c)}, {"mean": jnp.zeros(c), "var": jnp.ones(c)}

    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    params: dict[str, Any] = {"stem": conv(3, 64, 3), "head": _init_dense(rng, 512, 10), "blocks": []}
    state: dict[str, Any] = {"blocks": []}
    params["bn"], state["bn"] = norm(64)
    for i, o, s in widths:
        p: dict[str, Any] = {"conv1": conv(i, o, 3), "conv2": conv(o, o, 3)}
        n: dict[str, Any] = {}
        p["bn1"], n["bn1"] = norm(o)
        p["bn2"], n["bn2"] = norm(o)
        if s != 1 or i != o:
            p["conv3"] = conv(i, o, 1)
            p["bn3"], n["bn3"] = norm(o)
        params["blocks"].append(p)
        state["blocks"].append(n)

    def convolve(w: jax.Array, x: jax.Array, stride: int) -> jax.Array:
        pad = (w.shape[0] - 1) // 2
        dims = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2, dimension_numbers=dims)

    def normalize(p: Params, n: Any, x: jax.Array) -> tuple[jax.Array, Any]:
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
        count = x.size // x.shape[-1]
        new = {"mean": 0.9 * n["mean"] + 0.1 * mean, "var": 0.9 * n["var"] + 0.1 * var * count / (count - 1)}
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"], new

    def apply(params: Params, state: Any, x: jax.Array, key: jax.Array) -> tuple[jax.Array, Any]:
        new: dict[str, Any] = {"blocks": []}
        h, new["bn"] = normalize(params["bn"], state["bn"], convolve(params["stem"], x, 1))
        h = jax.nn.relu(h)
        for (_, _, stride), p, n in zip(widths, params["blocks"], state["blocks"], strict=True):
            m: dict[str, Any] = {}
            r, m["bn1"] = normalize(p["bn1"], n["bn1"], convolve(p["conv1"], h, stride))
            r, m["bn2"] = normalize(p["bn2"], n["bn2"], convolve(p["conv2"], jax.nn.relu(r), 1))
            if "conv3" in p:
                h, m["bn3"] = normalize(p["bn3"], n["bn3"], convolve(p["conv3"], h, stride))
            h = jax.nn.relu(h + r)
            new["blocks"].append(m)
        return _dense(params["head"], h.mean((1, 2))), new

    return (params, state), apply


def gpt(rng: np.random.Generator, layers: int = 4, dim: int = 256, heads: int = 4, rate: float = 0.1) -> Any:
    def block() -> Params:
        return {
            "qkv": _init_dense(rng, dim, 3 * dim), "out": _init_dense(rng, dim, dim),
            "up": _init_dense(rng, dim, 4 * dim), "down": _init_dense(rng, 4 * dim, dim),
            "n1": [jnp.ones(dim), jnp.zeros(dim)], "n2": [jnp.ones(dim), jnp.zeros(dim)],
        }  # fmt: skip

    params = {
        "tokens": jnp.asarray(rng.normal(0, 1, (256, dim)), jnp.float32),
        "positions": jnp.asarray(rng.normal(0, 0.02, (128, dim)), jnp.float32),
        "blocks": [block() for _ in range(layers)],
        "norm": [jnp.ones(dim), jnp.zeros(dim)],
    }

    def layer_norm(p: Params, x: jax.Array) -> jax.Array:
        mean = x.mean(-1, keepdims=True)
        var = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p[0] + p[1]

    def dropout(x: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)

    def attend(p: Params, x: jax.Array) -> jax.Array:
        b, t, _ = x.shape
        q, k, v = (a.reshape(b, t, heads, dim // heads) for a in jnp.split(_dense(p["qkv"], x), 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(dim // heads)
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
        h = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)
        return _dense(p["out"], h.reshape(b, t, dim))

    def apply(params: Params, state: Any, x: jax.Array, key: jax.Array) -> tuple[jax.Array, Any]:
        keys = iter(jax.random.split(key, 2 * layers + 1))
        h = dropout(params["tokens"][x] + params["positions"], next(keys))
        for p in params["blocks"]:
            h = h + dropout(attend(p, layer_norm(p["n1"], h)), next(keys))
            f = _dense(p["down"], jax.nn.gelu(_dense(p["up"], layer_norm(p["n2"], h)), approximate=False))
            h = h + dropout(f, next(keys))
        return layer_norm(params["norm"], h) @ params["tokens"].T, state

    return (params, None), apply


REFERENCES: dict[str, Any] = {"mlp": mlp, "resnet18": resnet18, "gpt": gpt}


class _Training:
    """A step, from what it carries and a batch to what it carries and the loss, and its data."""

    step: Callable[..., Any]
    carry: Any
    x: np.ndarray
    y: np.ndarray
    batch_size: int

    def __init__(self) -> None:
        self.shuffle = np.random.default_rng(1)

    def epoch(self) -> None:
        order = self.shuffle.permutation(len(self.y))
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            self.carry, loss = self.step(self.carry, self.x[rows], self.y[rows])
        jax.block_until_ready(loss)


class JaxTraining(_Training):
    """A jitted, donated training step and its data."""

    def __init__(self, name: str, x: np.ndarray, y: np.ndarray, batch_size: int) -> None:
        super().__init__()
        (params, state), apply = REFERENCES[name](np.random.default_rng(0))
        optimizer = optax.sgd(0.01, 0.9) if name == "resnet18" else optax.adamw(1e-3, weight_decay=0.01)
        self.x = x.astype(np.int32) if name == "gpt" else x
        if name == "resnet18":
            self.x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        self.y, self.batch_size = y.astype(np.int32), batch_size
        self.carry = (params, state, optimizer.init(params), jax.random.key(0))

        def loss_fn(params: Params, state: Any, x: jax.Array, y: jax.Array, key: jax.Array) -> tuple[jax.Array, Any]:
            logits, state = apply(params, state, x, key)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), state

        def step(carry: Any, x: jax.Array, y: jax.Array) -> tuple[Any, jax.Array]:
            params, state, moments, key = carry
            key, used = jax.random.split(key)
            (loss, state), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, state, x, y, used)
            updates, moments = optimizer.update(grads, moments, params)
            return (optax.apply_updates(params, updates), state, moments, key), loss

        self.step = jax.jit(step, donate_argnums=0, compiler_options=OPTIONS)


_TEXTS: dict[str, tuple[Any, Any]] = {
    "lstm": (lstm, lstm.Sizes(width=256, vocabulary=256, dtype=jnp.float32)),
    "bert": (bert, bert.Sizes(layers=2, dim=128, heads=2, length=128, vocabulary=256, dtype=jnp.float32)),
}


class TextTraining(_Training):
    """A step of `benchmarks/reference/` in float32 on one device, and its data."""

    def __init__(self, name: str, x: np.ndarray, y: np.ndarray, batch_size: int) -> None:
        super().__init__()
        module, sizes = _TEXTS[name]
        mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
        step, (params, moments, *_) = module.step_of(mesh, replace(sizes, batch=batch_size))
        rng = np.random.default_rng(0)
        self.carry = (
            jax.tree.map(lambda p: jnp.asarray(rng.normal(0, 0.02, p.shape), p.dtype), params),
            jax.tree.map(lambda p: jnp.zeros(p.shape, p.dtype), moments),
            jax.random.key(0, impl="rbg"),
        )
        self.x, self.y, self.batch_size = x.astype(np.int32), y.astype(np.int32), batch_size
        *state, key = self.carry
        compiled = step.lower(*state, self.x[:batch_size], self.y[:batch_size], key).compile(compiler_options=OPTIONS)

        def stepped(carry: Any, x: np.ndarray, y: np.ndarray) -> tuple[Any, jax.Array]:
            *state, key = carry
            *carry, loss = compiled(*state, x, y, key)
            return carry, loss

        self.step = stepped
