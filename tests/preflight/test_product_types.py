from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from systolic.preflight._compiled import _product_types


@pytest.mark.parametrize(
    ("equation", "counted"),
    [("hsd,hsd->hs", {}), ("hsd,htd->hst", {"f32": 1}), ("hsd,hd->hs", {"f32": 1}), ("sd,dt->st", {"f32": 1})],
)
def test_sums_of_rows_are_no_matrix_products(equation: str, counted: dict[str, int]) -> None:
    sizes = {"h": 2, "s": 3, "t": 3, "d": 4}
    operands = [jnp.ones([sizes[name] for name in part]) for part in equation.split("->")[0].split(",")]
    program = jax.jit(lambda *both: jnp.einsum(equation, *both)).lower(*operands).as_text(debug_info=True)
    assert "dot_general" in program
    assert _product_types(program) == counted
