"""What was asked is what is compiled: every precision, read from the program's text (F14 to F17)."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from program_text import Programs, float_dtypes, operand_dtypes, product_dtypes, result_dtypes, summed_dtypes
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic.precision import PRECISIONS, Precision, resolve_matmul_precision, resolve_precision

pytestmark = pytest.mark.thin(3, 2)

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "max_epochs": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64


class Classifier(L.LightningModule):
    """Convolution, normalisations, products, a loss; notes the dtypes that its steps saw."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Any] = {}
        self.conv = nn.Conv2d(1, 4, 3, bias=False)  # the norm takes a bias out again: its gradient is noise
        self.norm = nn.BatchNorm2d(4)
        self.net = nn.Sequential(nn.Flatten(), nn.LayerNorm(144), nn.Linear(144, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(torch.relu(self.norm(self.conv(x))))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        scores = self(x)
        self.seen |= {"batch": x.dtype, "labels": y.dtype, "scores": scores.dtype, "new": torch.zeros(1).dtype}
        loss = F.cross_entropy(scores, y)
        self.seen["loss"] = loss.dtype
        self.log("loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.cross_entropy(self(batch[0]), batch[1]))

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def digits(count: int = 64, batch_size: int = 16, **options: Any) -> DataLoader[Any]:
    x, y = load_digits(return_X_y=True)
    images = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    return DataLoader(TensorDataset(images[:count], torch.tensor(y)[:count]), batch_size=batch_size, **options)


class Losses(L.Callback):
    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.kept.append(outputs["loss"])

    @property
    def values(self) -> torch.Tensor:
        return torch.tensor([float(loss) for loss in self.kept], dtype=torch.float64)


@dataclass(frozen=True)
class Run:
    module: Any
    trainer: L.Trainer
    text: str
    losses: torch.Tensor


def fit(precision: Any, module: Any = None, **options: Any) -> Run:
    data = options.pop("data", None) or digits()
    torch.manual_seed(0)
    module = module or Classifier()
    programs, losses = Programs(), Losses()
    callbacks = [losses] if options.get("compile") is False else [programs, losses]
    trainer = L.Trainer(precision=precision, **{**QUIET, "callbacks": callbacks, "gradient_clip_val": 1.0, **options})
    trainer.fit(module, data, digits(16))
    return Run(module, trainer, programs.text, losses.values)


@functools.cache
def run_in(name: str, compiled: bool = True) -> Run:
    """One run in each precision, looked at by several tests."""
    return fit(name, max_epochs=4, compile=compiled, data=digits(1792, 128))


@dataclass(frozen=True)
class Row:
    """What a request for a precision means; `products` and `sums` are read from the compiled program."""

    request: Any
    name: str
    parameters: torch.dtype
    batch: torch.dtype
    new_tensors: torch.dtype
    scores: torch.dtype
    loss: torch.dtype
    moments: torch.dtype
    products: str
    sums: str
    warns: str | None = None


THERE_IS_NO_FLOAT16 = "computes in bfloat16, as on a TPU"
TABLE = [
    Row(None, "32-true", F32, F32, F32, F32, F32, F32, "f32", "f32"),
    Row("32-true", "32-true", F32, F32, F32, F32, F32, F32, "f32", "f32"),
    Row(32, "32-true", F32, F32, F32, F32, F32, F32, "f32", "f32"),
    Row("bf16-true", "bf16-true", BF16, BF16, BF16, BF16, BF16, BF16, "bf16", "f32"),
    Row("16-true", "bf16-true", BF16, BF16, BF16, BF16, BF16, BF16, "bf16", "f32", THERE_IS_NO_FLOAT16),
    Row("bf16-mixed", "bf16-mixed", F32, F32, F32, BF16, F32, F32, "bf16", "f32"),
    Row("16-mixed", "bf16-mixed", F32, F32, F32, BF16, F32, F32, "bf16", "f32", THERE_IS_NO_FLOAT16),
    Row("64-true", "64-true", F64, F64, F64, F64, F64, F64, "f64", "f64"),
]


# defect 1: "16-true" silently stored float32
# defect 2: "bf16-true" worked through an environment variable
# defect 3: "bf16-mixed" was documented and refused
# R#1469: a request for bfloat16 resolved to 32-true
@pytest.mark.parametrize("row", TABLE, ids=lambda row: str(row.request))
def test_what_was_asked_is_what_is_compiled(row: Row, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert L.Trainer(precision=row.request, **QUIET).precision == row.name
    assert [row.warns in str(w.message) for w in caught] == ([True] if row.warns else [])
    run = run_in(row.name)
    assert {p.dtype for p in run.module.parameters()} == {row.parameters}
    assert run.module.norm.running_mean.dtype == row.parameters
    assert run.module.seen == {
        "batch": row.batch, "labels": torch.int64, "scores": row.scores, "new": row.new_tensors, "loss": row.loss,
    }  # fmt: skip
    moments = [s for state in run.trainer.optimizers[0].state.values() for name, s in state.items() if name != "step"]
    assert {m.dtype for m in moments} == {row.moments}
    assert product_dtypes(run.text) == {row.products}
    assert operand_dtypes(run.text, "convolution") == {row.products}
    assert summed_dtypes(run.text) == {row.sums}
    run.trainer.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert {t.dtype for t in saved["state_dict"].values() if t.is_floating_point()} == {row.parameters}
    kept = [v.dtype for s in saved["optimizer_states"][0]["state"].values() for n, v in s.items() if n != "step"]
    assert set(kept) == {row.moments}


def test_a_run_in_float32_has_no_other_type_in_it() -> None:
    # the host's numbers (lr, epoch) arrive in double precision and are rounded once
    lines = run_in("32-true").text.splitlines()
    others = [line for line in lines if float_dtypes(line) - {"f32"} and "func.func" not in line]
    assert all("convert" in line or "slice" in line or "reshape" in line for line in others), others


def test_parameters_are_updated_in_float32_in_mixed_precision() -> None:
    lines = [line for line in run_in("bf16-mixed").text.splitlines() if "stablehlo.sqrt" in line]
    assert lines  # of Adam, of the norms
    assert not [line for line in lines if "f32" not in line]


def test_products_in_half_precision_are_summed_in_float32() -> None:
    """Also over the cores: what each core sums is rounded after the cores' sums were added."""
    assert result_dtypes(run_in("bf16-mixed").text, "dot_general") == {"f32"}


@pytest.mark.parametrize("precision", ["bf16-true", "bf16-mixed"])
def test_prediction_has_the_same_precision(precision: str) -> None:
    programs = Programs()
    found = L.Trainer(precision=precision, callbacks=[programs], **QUIET).predict(Classifier(), digits())
    assert operand_dtypes(programs.text, "dot_general") == {"bf16"}
    assert {t.dtype for t in found} == {BF16}


# One rounding to bfloat16 is at most 2^-9 of a value. Eager PyTorch rounds after every op, XLA may keep digits between
# fused ones, so that neither is the exact one: over 12 steps they stay this close.
STEPS = 12
ROUNDING = {"32-true": 1e-5, "64-true": 1e-12, "bf16-mixed": 2**-8, "bf16-true": 2**-6}


@pytest.mark.parametrize("precision", sorted(PRECISIONS))
def test_equals_eager_pytorch_in_the_same_precision(precision: str) -> None:
    compiled, eager = run_in(precision), run_in(precision, compiled=False)
    torch.testing.assert_close(compiled.losses[:STEPS], eager.losses[:STEPS], rtol=ROUNDING[precision], atol=0)
    assert [p.dtype for p in compiled.module.parameters()] == [p.dtype for p in eager.module.parameters()]
    values = [float(run.trainer.callback_metrics["val_loss"]) for run in (compiled, eager)]
    assert values[0] == pytest.approx(values[1], rel=1e-6 if precision == "64-true" else 0.02)  # after 56 steps


def test_float64_has_sixteen_digits() -> None:
    compiled, eager = fit("64-true", linear()), fit("64-true", linear(), compile=False)
    torch.testing.assert_close(compiled.losses, eager.losses, rtol=1e-14, atol=0)
    for p, q in zip(compiled.module.parameters(), eager.module.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)


def linear() -> Any:
    torch.manual_seed(1)

    class Linear(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.only = nn.Linear(64, 10)
            self.conv = self.norm = self.net = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            # integers become floats of the default dtype
            return self.only(x.flatten(1)) * (torch.arange(10) / 3)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.only.parameters(), lr=0.01)

    return Linear()


BAND = 0.02
"""Of the first loss: how far a loss curve in bf16-mixed may be from the one in float32, everywhere."""


def require_same_curve(mixed: torch.Tensor, full: torch.Tensor, window: int) -> None:
    """The running means of `window` steps agree within the band, and both runs learned."""
    means = [curve.unfold(0, window, 1).mean(1) for curve in (mixed, full)]
    assert (means[0] - means[1]).abs().max() < BAND * full[0]
    assert full[-window:].mean() < 0.5 * full[0]
    assert not torch.equal(mixed, full)


def test_mixed_precision_learns_digits_like_float32() -> None:
    require_same_curve(run_in("bf16-mixed").losses, run_in("32-true").losses, window=4)


@pytest.mark.slow
def test_mixed_precision_learns_text_like_float32() -> None:
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    from text import ByteGPT, LossCurve, loaders

    curves = []
    for precision in ("bf16-mixed", "32-true"):
        kept = LossCurve()
        torch.manual_seed(0)
        data = loaders(16)[0]
        trainer = L.Trainer(precision=precision, **{**QUIET, "max_epochs": -1, "max_steps": 200, "callbacks": [kept]})
        trainer.fit(ByteGPT(), data)
        curves.append(torch.tensor([float(loss) for loss in kept.losses], dtype=torch.float64))
    require_same_curve(*curves, window=20)


def test_matmul_precision_is_in_the_program() -> None:
    texts = {"DEFAULT": run_in("32-true").text}
    for word in ("high", "highest"):
        programs = Programs()
        trainer = L.Trainer(matmul_precision=word, callbacks=[programs], **QUIET)
        trainer.predict(Classifier(), digits())
        texts[word.upper()] = programs.text
    for written, text in texts.items():
        products = [line for line in text.splitlines() if "dot_general" in line]
        assert products
        assert all(f"precision = [{written}, {written}]" in line for line in products)
        convolutions = [line for line in text.splitlines() if "stablehlo.convolution" in line]
        assert convolutions
        assert all(f"#stablehlo<precision {written}>" in line for line in convolutions)


def test_matmul_precision_follows_pytorch_on_a_gpu() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        for word, meaning in (("highest", "highest"), ("high", "high"), ("medium", "default")):
            torch.set_float32_matmul_precision(word)
            assert resolve_matmul_precision(None, "gpu") == meaning
            assert resolve_matmul_precision(None, "tpu") == "default"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("device", ["cuda", "xla", "cpu"])
def test_autocast_in_a_step_acts_on_the_devices_of_the_run(device: str) -> None:
    """A script for another accelerator switches it on, or off for a block; neither is passed over."""

    class Blocks(Classifier):
        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0].flatten(1)
            with torch.autocast(device, enabled=False):
                exact = x @ x.T
            with torch.autocast(device, dtype=None if device == "cuda" else BF16):
                rounded = x @ x.T
            return exact, rounded

    for precision in ("32-true", "bf16-mixed"):
        programs = Programs()
        trainer = L.Trainer(precision=precision, callbacks=[programs], **QUIET)
        exact, rounded = trainer.predict(Blocks(), digits(16))[0]
        assert (exact.dtype, rounded.dtype) == (F32, BF16)
        assert operand_dtypes(programs.text, "dot_general") == {"f32", "bf16"}
        eager = L.Trainer(precision=precision, compile=False, **QUIET).predict(Blocks(), digits(16))[0]
        torch.testing.assert_close(eager[0], exact)
        assert eager[1].dtype == BF16
    with pytest.warns(UserWarning, match="CUDA is not available"):  # outside of a step PyTorch's own rules hold
        assert not torch.autocast("cuda")._enabled


def test_on_a_tpu_sixteen_bits_are_bfloat16_without_a_word() -> None:
    assert resolve_precision("16-true", "tpu") == PRECISIONS["bf16-true"]
    assert resolve_precision("16-mixed", "tpu") == PRECISIONS["bf16-mixed"]


@pytest.mark.parametrize(("platform", "reason"), [("tpu", "a TPU has no float64 units"), ("gpu", "not compute in float64")])
def test_float64_runs_on_the_cpu_only(platform: str, reason: str) -> None:
    with pytest.raises(L.MisconfigurationException, match=f'"64-true" runs on the CPU only: .*{reason}.*matmul_precision'):
        resolve_precision("64-true", platform)


@pytest.mark.parametrize("wrong", ["bf16-tru", "8-true", 8, 2.5, True, ["bf16-true"], "transformer-engine"])
def test_unknown_precision(wrong: Any) -> None:
    with pytest.raises(L.MisconfigurationException, match="`precision`.*Expected one of '32-true', 'bf16-true'"):
        L.Trainer(precision=wrong, **QUIET)


def test_unknown_matmul_precision() -> None:
    with pytest.raises(L.MisconfigurationException, match="`matmul_precision`.*'default', 'high', 'highest'.*Did you mean"):
        L.Trainer(matmul_precision="hihgest", **QUIET)


def test_init_module_creates_parameters_in_the_precision() -> None:
    trainer = L.Trainer(precision="bf16-true", **QUIET)
    with trainer.init_module():
        module = Classifier()
    assert {p.dtype for p in module.parameters()} == {BF16}
    assert torch.get_default_dtype() == F32
    with L.Trainer(precision="bf16-mixed", **QUIET).init_module():
        assert nn.Linear(2, 2).weight.dtype == F32


def test_init_module_can_leave_weights_uninitialised() -> None:
    with L.Trainer(precision="32-true", **QUIET).init_module(empty_init=True):
        torch.manual_seed(0)
        layer = nn.Linear(4, 4)
        after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(1))  # no random number was drawn for weights
    assert layer.weight.shape == (4, 4)


def test_the_default_dtype_is_restored_after_an_error() -> None:
    class Failing(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            raise KeyError("on purpose")

    with pytest.raises(KeyError):
        fit("bf16-true", Failing())
    assert torch.get_default_dtype() == F32


def test_batches_are_converted_before_the_users_hook() -> None:
    seen = []

    class Hooked(Classifier):
        def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            seen.append([t.dtype for t in batch])
            return batch

    fit("bf16-true", Hooked(), compile=False)
    assert {tuple(dtypes) for dtypes in seen} == {(BF16, torch.int64)}


def test_only_floating_values_are_converted() -> None:
    batch = {"x": np.ones((2, 3)), "n": np.arange(2), "t": torch.ones(2), "i": torch.arange(2), "s": "name", "f": 0.5}
    converted = PRECISIONS["bf16-true"].convert_input(batch)
    assert {k: v.dtype for k, v in converted.items() if isinstance(v, torch.Tensor)} == {"x": BF16, "t": BF16, "i": torch.int64}
    assert converted["n"] is batch["n"]
    assert (converted["s"], converted["f"]) == ("name", 0.5)
    assert PRECISIONS["bf16-mixed"].convert_input(batch) is batch


def test_loaders_do_not_see_the_steps_default_dtype() -> None:
    """The thread that fetches batches runs while a step is traced, which takes seconds."""
    found = []

    class Slow(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> Any:
            found.append(torch.ones(1).dtype)
            return torch.rand(1, 8, 8), index % 10

    L.Trainer(precision="64-true", **QUIET).fit(linear(), DataLoader(Slow(), batch_size=2))
    assert set(found) == {F32}


def test_a_fetch_waits_for_the_step_that_holds_another_default_dtype() -> None:
    precision: Precision = PRECISIONS["bf16-true"]
    dtypes: list[torch.dtype] = []

    def batches() -> Iterator[int]:
        for index in range(3):
            dtypes.append(torch.get_default_dtype())
            yield index

    fetched: list[int] = []
    thread = threading.Thread(target=lambda: fetched.extend(precision.undisturbed(batches())))
    with precision.init_context():
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert not fetched
    thread.join()
    assert fetched == [0, 1, 2]
    assert set(dtypes) == {F32}


def test_a_checkpoint_of_another_precision_is_converted(tmp_path: Path) -> None:
    run_in("32-true").trainer.save_checkpoint(tmp_path / "a.ckpt")
    module = Classifier()
    resumed = L.Trainer(precision="bf16-true", **{**QUIET, "max_epochs": 5, "compile": False})
    resumed.fit(module, digits(), ckpt_path=tmp_path / "a.ckpt")
    assert {p.dtype for p in module.parameters()} == {BF16}
    assert resumed.global_step == 60
    assert {s["exp_avg"].dtype for s in resumed.optimizers[0].state.values()} == {BF16}
