"""The TPU kernels in Pallas's interpreter on the CPU, against attention by its definition."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from systolic.compiler.kernels import _flash_attention
from systolic.compiler.kernels._flash_attention import flash_attention, flash_supports
from systolic.compiler.kernels._plain_attention import plain_attention
from systolic.preflight import parse_slice, slice_devices
from systolic.sharding import MeshShape, make_mesh

pytestmark = pytest.mark.thin(10, 4)


@dataclass(frozen=True)
class Case:
    """One attention: what the shapes of its operands and its mask are."""

    name: str
    heads: int = 2
    key_heads: int = 2
    lengths: tuple[int, int] = (128, 128)
    features: int = 64
    width: int | None = None
    causal: bool = False
    dropout: float = 0.0
    mask: tuple[int, ...] | None = None
    mask_dtype: str = "bool"
    shift: float = 0.0
    batch: int = 2

    def operands(self, dtype: str = "float32") -> list[jax.Array]:
        """Query, key, value, and a cotangent of the result."""
        numbers = np.random.default_rng(0)
        width = self.width or self.features
        shapes = [
            (self.batch, self.heads, self.lengths[0], self.features),
            (self.batch, self.key_heads, self.lengths[1], self.features),
            (self.batch, self.key_heads, self.lengths[1], width),
            (self.batch, self.heads, self.lengths[0], width),
        ]
        return [jnp.asarray(numbers.normal(size=shape), dtype) for shape in shapes]

    def given_mask(self) -> jax.Array | None:
        """The mask; a boolean one hides everything from one of the queries."""
        if self.mask is None:
            return None
        numbers = np.random.default_rng(1)
        if self.mask_dtype != "bool":
            return jnp.asarray(numbers.normal(self.shift, size=self.mask), self.mask_dtype)
        hidden = numbers.random(self.mask) > 0.4
        if self.mask[-2] > 1:
            hidden[..., 3, :] = False
        return jnp.asarray(hidden)

    def draw(self) -> jax.Array | None:
        return jnp.asarray([1, 2, 3, 4], jnp.uint32) if self.dropout else None


CASES = [
    Case("one tile", causal=True),
    Case("not causal", features=32),
    Case("several tiles", 1, 1, (1280, 1280), causal=True),
    Case("several tiles that are not causal", 1, 1, (1280, 1280)),
    Case("other keys than queries", 1, 1, (128, 256)),
    Case("causal with more keys than queries", 1, 1, (128, 1024), causal=True),
    Case("causal with more queries than keys", 1, 1, (1280, 128), causal=True),
    Case("grouped queries", 4, 2, causal=True),
    Case("grouped queries over several tiles", 2, 1, (1280, 1280), causal=True),
    Case("grouped queries of which a step takes some", 4, 1, (512, 512), 16),
    Case("grouped queries, the last tile not full", 4, 2, (1100, 1300), 16, causal=True, dropout=0.1),
    Case("one head of keys for all", 4, 1, dropout=0.3),
    Case("an odd number of features", features=72, causal=True),
    Case("values of another width", features=48, width=32, causal=True),
    Case("lengths that are no multiples of a register", lengths=(197, 150)),
    Case("short keys", lengths=(256, 77)),
    Case("several tiles, the last not full", 1, 1, (1100, 1300), dropout=0.1),
    Case("several tiles, the last not full, causal", 2, 1, (1100, 1100), causal=True),
    Case("dropout", dropout=0.1),
    Case("dropout over several tiles", 2, 2, (1280, 1280), causal=True, dropout=0.5),
    Case("dropout at odd lengths", lengths=(197, 150), dropout=0.25),
    Case("all dropped", dropout=1.0),
    Case("padding", mask=(2, 1, 1, 128)),
    Case("padding at odd lengths, with dropout", lengths=(197, 150), mask=(2, 1, 1, 150), dropout=0.1),
    Case("a mask for each batch element", mask=(2, 1, 128, 128)),
    Case("a mask for each head", mask=(1, 2, 128, 128)),
    Case("a mask for all", mask=(128, 128)),
    Case("a mask of three dimensions", mask=(2, 128, 128)),
    Case("a mask over several tiles", lengths=(1280, 1280), mask=(2, 2, 1280, 1280), causal=True),
    Case("a column of a mask", mask=(2, 1, 128, 1)),
    Case("numbers that are added", mask=(2, 1, 128, 128), mask_dtype="float32"),
    Case("narrow numbers that are added", mask=(1, 2, 1, 150), mask_dtype="bfloat16", lengths=(197, 150), dropout=0.1),
    Case("large numbers that are added", mask=(1, 2, 1, 150), mask_dtype="float32", shift=120.0, lengths=(197, 150)),
]


LENGTH = 1280


def hides_tiles(kind: str) -> jax.Array:
    """Masks of two sequences that hide whole tiles, and one that hides everything from the second one."""
    position = np.arange(LENGTH)
    causal = position[:, None] >= position
    packed = causal & (position[:, None] // 500 == position // 500)
    padding = position < np.array([[LENGTH], [100]])
    masks = {
        "causal": causal[None, None],
        "packed": packed[None],
        "window": (causal & (position[:, None] - position < 64))[None, None],
        "padding": padding[:, None, None],
        "queries": padding[:, None, :, None],
        "nothing": np.array([True, False])[:, None, None, None] & causal,
    }
    return jnp.asarray(masks[kind])


@pytest.mark.parametrize("added", [False, True], ids=["boolean", "added"])
@pytest.mark.parametrize("kind", ["causal", "packed", "window", "padding", "queries", "nothing"])
def test_tiles_that_a_mask_hides_are_not_computed(kind: str, added: bool) -> None:
    """Not a number among keys that nobody looks at would make all of a row it, if it were multiplied by zero."""
    mask = hides_tiles(kind)
    given = jnp.where(mask, 0.0, -jnp.inf) if added else mask
    case = Case("", heads=1, key_heads=1, lengths=(LENGTH, LENGTH), features=16)
    *inputs, cotangent = case.operands()

    def of(function: Any, *x: jax.Array, **options: Any) -> Any:
        result, pull = jax.vjp(lambda *y: function(*y, given, None, causal=False, scale=0.25, dropout=0.0, **options), *x)
        return result, *pull(cotangent)

    compare(of(plain_attention, *inputs), of(flash_attention, *inputs, mesh=None, interpret=True))
    if kind in ("padding", "nothing"):
        query, key, value = inputs
        result, *_ = of(flash_attention, query, key.at[1, :, -128:].set(jnp.nan), value, mesh=None, interpret=True)
        assert not jnp.isnan(result).any()


def both(case: Case, **options: Any) -> tuple[Any, Any]:
    """Results and gradients by definition and by the kernels."""
    *inputs, cotangent = case.operands()
    mask, draw, scale = case.given_mask(), case.draw(), case.features**-0.5

    def plain(*x: jax.Array) -> jax.Array:
        return plain_attention(*x, mask, draw, causal=case.causal, scale=scale, dropout=case.dropout)

    def kernel(*x: jax.Array) -> jax.Array:
        settings = {"mesh": None, "interpret": True, **options}
        return flash_attention(*x, mask, draw, causal=case.causal, scale=scale, dropout=case.dropout, **settings)

    # as the engine traces programs
    with jax.enable_x64(True):
        (expected, pull), (found, pull_kernel) = (jax.jit(jax.vjp, static_argnums=0)(f, *inputs) for f in (plain, kernel))
        return (expected, *pull(cotangent)), (found, *pull_kernel(cotangent))


def compare(expected: Any, found: Any) -> None:
    for got, want, tolerance in zip(found, expected, (2e-5, 5e-5, 5e-5, 5e-5, 5e-5)[: len(expected)], strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_kernels_compute_attention_and_its_gradients(case: Case) -> None:
    assert flash_supports(*case.operands()[:3], case.given_mask(), None)
    compare(*both(case))


def with_room_for(monkeypatch: pytest.MonkeyPatch, fits: Callable[..., bool]) -> Iterator[None]:
    """No room but for some sizes; without the traces of kernels that had room, and leaving none."""
    monkeypatch.setattr(_flash_attention, "_bytes_of_a_head", lambda *sizes: 1 if fits(*sizes) else 2**40)
    _flash_attention._on_each_core.clear_cache()
    yield
    _flash_attention._on_each_core.clear_cache()


@pytest.fixture
def in_two_passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No room for the gradients of more queries than a tile's."""
    yield from with_room_for(monkeypatch, lambda *sizes: sizes[3] == sizes[5])


@pytest.mark.usefixtures("in_two_passes")
@pytest.mark.parametrize(
    "name",
    [
        "several tiles",
        "several tiles, the last not full",
        "several tiles that are not causal",
        "grouped queries over several tiles",
        "dropout over several tiles",
    ],
)
def test_gradients_in_two_passes(name: str) -> None:
    compare(*both(next(case for case in CASES if case.name == name)))


@pytest.fixture
def without_room_for_all_keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No room for the gradients of more keys than a tile's."""
    yield from with_room_for(monkeypatch, lambda *sizes: sizes[4] == sizes[6])


@pytest.mark.usefixtures("without_room_for_all_keys")
@pytest.mark.parametrize("name", ["grouped queries over several tiles", "grouped queries, the last tile not full"])
def test_gradients_of_shared_keys_are_added_up_outside_where_there_is_no_room(name: str) -> None:
    compare(*both(next(case for case in CASES if case.name == name)))


@pytest.mark.parametrize(("heads", "length", "summed"), [(8, 2048, True), (8, 65536, False), (1, 65536, True)])
def test_gradients_of_shared_keys_are_added_up_where_they_fit(heads: int, length: int, summed: bool) -> None:
    """On a v5e, eight heads of the query with one of the key; of keys that nobody shares there is nothing to add."""
    query = jax.ShapeDtypeStruct((1, 8, length, 64), jnp.bfloat16)
    key = jax.ShapeDtypeStruct((1, 8 // heads, length, 64), jnp.bfloat16)
    pytest.importorskip("libtpu")
    mesh = Mesh(np.array(slice_devices(parse_slice("v5e:2x2"))[:1]), ("data",))
    settings = _flash_attention._Settings(causal=True, scale=1.0, dropout=0.0, exact=False, interpret=False, mesh=mesh)
    assert _flash_attention._problem(settings, 8, query, key, key, None).groups_sum == summed


TRAINED = [
    Case("for each batch element", mask=(2, 2, 128, 128)),
    Case("shared by the batch", mask=(1, 2, 128, 128), dropout=0.2),
    Case("shared, over several tiles", mask=(1, 2, 1100, 197), lengths=(1100, 197), features=16),
    Case("causal, over several tiles", 1, 1, (1100, 1100), 16, causal=True, mask=(2, 1, 1100, 1100), dropout=0.2),
    Case("shared keys", 4, 2, mask=(1, 4, 128, 128), causal=True),
    Case("of three dimensions", mask=(2, 128, 128), dropout=0.2),
    Case("one for all heads", mask=(2, 1, 128, 128), dropout=0.2),
    Case("of keys", mask=(2, 1, 1, 128)),
    Case("of two dimensions", mask=(128, 128)),
]


def both_with_mask(case: Case, hidden: bool) -> tuple[Any, Any, str]:
    """Results and gradients, the mask's among them, by definition and by the kernels; and the latter's program."""
    *inputs, cotangent = case.operands()
    assert case.mask is not None
    mask = jnp.asarray(np.random.default_rng(1).normal(size=case.mask), jnp.float32)
    # as T5's: padding hides keys, in a mask that is trained
    inputs.append(mask.at[..., -40:].set(-jnp.inf) if hidden else mask)
    settings = {"causal": case.causal, "scale": 0.1, "dropout": case.dropout}

    def plain(*x: jax.Array) -> jax.Array:
        return plain_attention(*x, case.draw(), **settings)

    def kernel(*x: jax.Array) -> jax.Array:
        return flash_attention(*x, case.draw(), mesh=None, interpret=True, **settings)

    with jax.enable_x64(True):
        (expected, pull), (found, pull_kernel) = (jax.vjp(f, *inputs) for f in (plain, kernel))
        program = str(jax.make_jaxpr(lambda *x: jax.vjp(kernel, *x)[1](cotangent))(*inputs))
        return (expected, *pull(cotangent)), (found, *pull_kernel(cotangent)), program


@pytest.mark.parametrize("hidden", [False, True], ids=["all seen", "padding"])
@pytest.mark.parametrize("case", TRAINED, ids=[case.name for case in TRAINED])
def test_a_trained_mask_has_its_gradient(case: Case, hidden: bool) -> None:
    expected, found, program = both_with_mask(case, hidden)
    compare(expected, found)
    of_heads = case.mask is not None and case.mask[-3:-2] == (case.heads,)
    assert ("pallas_call" in program) == of_heads, "a number for each query and key of each head"


@pytest.mark.usefixtures("in_two_passes")
@pytest.mark.parametrize("name", ["shared, over several tiles", "causal, over several tiles"])
def test_a_trained_mask_in_two_passes(name: str) -> None:
    expected, found, program = both_with_mask(next(case for case in TRAINED if case.name == name), hidden=True)
    compare(expected, found)
    assert "partial_backward" in program


def test_a_trained_mask_without_room_is_left_to_the_plain_form() -> None:
    case = Case("", 1, 1, (2048, 2048), 16, mask=(1, 1, 2048, 2048))
    *_, program = both_with_mask(case, hidden=False)
    assert "pallas_call" not in program


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [MeshShape(8, 1, 1), pytest.param(MeshShape(2, 2, 2), marks=pytest.mark.tables), MeshShape(1, 1, 8)], ids=str
)
@pytest.mark.parametrize(
    ("mask", "trained"),
    [(None, False), ((8, 1, 128, 128), False), ((1, 4, 128, 128), False), ((8, 4, 128, 128), True), ((1, 4, 128, 128), True)],
    ids=["no mask", "for the batch", "for the heads", "trained", "trained and shared"],
)
def test_cores_draw_what_one_core_draws(shape: MeshShape, mask: tuple[int, ...] | None, trained: bool) -> None:
    """Batch and heads are split where they divide; with eight cores along four heads, all compute everything."""
    case = Case("", batch=8, heads=4, key_heads=4, dropout=0.3, mask=mask, mask_dtype="float32" if trained else "bool")
    mesh = make_mesh(jax.devices()[: shape.data * shape.fsdp * shape.tensor], shape)
    *inputs, cotangent = case.operands()
    given, draw = case.given_mask(), case.draw()
    inputs += [given] if trained and given is not None else []

    def kernel(mesh: Mesh | None, *x: jax.Array) -> Any:
        options = {"causal": True, "scale": 0.125, "dropout": case.dropout, "mesh": mesh, "interpret": True}
        result, pull = jax.vjp(lambda *y: flash_attention(*(y if trained else (*y, given)), draw, **options), *x)
        return result, *pull(cotangent)

    expected = jax.jit(kernel, static_argnums=0)(None, *inputs)
    placed = [jax.device_put(x, NamedSharding(mesh, PartitionSpec())) for x in inputs]
    compare(expected, jax.jit(kernel, static_argnums=0)(mesh, *placed))


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 2, 32, 64)] * 3,
        [(2, 128, 64)] * 3,
        [(2, 3, 128, 64), (2, 2, 128, 64), (2, 2, 128, 64)],
        [(1, 1, 128, 512)] * 3,
        [(2, 2, 128, 64), (1, 2, 128, 64), (1, 2, 128, 64)],
    ],
    ids=["length", "rank", "heads", "features", "batch"],
)
def test_what_the_kernels_do_not_know_is_left_to_the_plain_form(shapes: list[tuple[int, ...]]) -> None:
    assert not flash_supports(*[jnp.zeros(shape, jnp.bfloat16) for shape in shapes], None, None)


@pytest.mark.parametrize(
    "mask", [jnp.zeros((3, 1, 1, 128)), jnp.zeros((1, 2, 2, 128, 128)), jnp.zeros((128, 128), jnp.float16)]
)
def test_masks_that_the_kernels_do_not_know(mask: jax.Array) -> None:
    x = jnp.zeros((2, 2, 128, 64), jnp.bfloat16)
    assert not flash_supports(x, x, x, mask, None)


def test_importing_systolic_does_not_import_pallas() -> None:
    script = "import sys, systolic; print(sorted(name for name in sys.modules if 'pallas' in name))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(("topology", "supported"), [("v5e:2x2", True), ("v3:2x2", False)])
def test_chips_without_kernels_get_the_plain_form(topology: str, supported: bool) -> None:
    pytest.importorskip("libtpu")
    devices = slice_devices(parse_slice(topology))  # not JAX's own way: libtpu's timers would end this process later
    inputs = [jnp.zeros((4, 2, 128, 64), jnp.bfloat16)] * 3
    assert flash_supports(*inputs, None, Mesh(np.array(devices), ("data",))) == supported


@pytest.mark.slow
@pytest.mark.parametrize("slice", ["v4-8", pytest.param("v5litepod-4", marks=pytest.mark.tables), "v5p-8", "v6e-4", "tpu7x-8"])
@pytest.mark.parametrize(
    ("case", "dtype", "precision"),
    [
        (Case("", 12, 12, (1024, 1024), 128, dropout=0.1, mask=(8, 1, 1024, 1024), batch=8), "bfloat16", "default"),
        (Case("", 4, 4, (1024, 1024), 256, dropout=0.1, mask=(1, 4, 1, 1024), batch=8), "float32", "high"),
        (Case("", 4, 1, (8192, 8192), 128, causal=True, batch=8), "float32", "default"),
        (Case("", 12, 12, (197, 77), 40, dropout=0.1, mask=(8, 1, 1, 77), batch=8), "bfloat16", "default"),
        (
            Case("", 12, 12, (512, 512), dropout=0.1, mask=(8, 12, 512, 512), mask_dtype="bfloat16", batch=8),
            "bfloat16",
            "default",
        ),
        (Case("", 12, 12, (1000, 1000), mask=(1, 12, 1000, 1000), mask_dtype="float32", batch=8), "float32", "high"),
        (Case("", 32, 8, (2048, 2048), causal=True, batch=8), "bfloat16", "default"),
    ],
    ids=["mask and dropout", "exact", "long", "short", "trained mask", "shared trained mask", "grouped"],
)
def test_every_generation_compiles_the_kernels(slice: str, case: Case, dtype: str, precision: str) -> None:
    """Each has its own limits of vector memory; a mesh of all chips shows that nothing is gathered."""
    pytest.importorskip("libtpu")
    mesh = make_mesh(slice_devices(parse_slice(slice)))
    split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    operands = [jax.ShapeDtypeStruct(x.shape, dtype, sharding=split) for x in case.operands()]
    placed = split if case.mask and case.mask[0] > 1 else whole
    mask = [] if case.mask is None else [jax.ShapeDtypeStruct(case.mask, case.mask_dtype, sharding=placed)]
    draw = jax.ShapeDtypeStruct((4,), jnp.uint32, sharding=whole)

    def step(
        query: jax.Array, key: jax.Array, value: jax.Array, cotangent: jax.Array, draw: jax.Array, *mask: jax.Array
    ) -> Any:
        options = {"causal": case.causal, "scale": 0.1, "dropout": case.dropout, "mesh": mesh}
        given, drawn = mask[0] if mask else None, draw if case.dropout else None
        if case.mask_dtype == "bool":
            result, pull = jax.vjp(lambda *x: flash_attention(*x, given, drawn, **options), query, key, value)
        else:
            result, pull = jax.vjp(lambda *x: flash_attention(*x, drawn, **options), query, key, value, given)
        return result, pull(cotangent)

    with jax.enable_x64(True), jax.default_matmul_precision(precision):
        text = jax.jit(step).lower(*operands, draw, *mask).compile().as_text()
    assert text is not None
    assert "attention_forward" in text
    assert "backward" in text
    assert "all-gather" not in text
