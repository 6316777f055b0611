"""Rows of the model sweep: models and losses of packages for one field each, those of them that are installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from _models_packages import classification, images
from _models_row import Batch, LossOf, MakeBatch, Row, add, mean_square, without_dropout
from torch import nn

Make = Callable[[], nn.Module]
WORDS, LENGTH = 64, 16


def _of(module: str, name: str, *args: Any, **options: Any) -> Make:
    """What builds a class of a package."""
    return lambda: getattr(importlib.import_module(module), name)(*args, **options)


def _rows(family: str, package: str, models: Mapping[str, Make], batch: MakeBatch, loss: LossOf) -> None:
    """One row for each model, where the package is installed."""
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        return
    for name, make in models.items():
        add(Row(f"{package} {name}", family, lambda make=make: without_dropout(make()), batch, loss))


def _one(*shape: int) -> MakeBatch:
    return lambda model: {"x": torch.randn(*shape)}


def _squared(model: nn.Module, batch: Batch) -> torch.Tensor:
    return mean_square(model(*batch.values()))


def _own_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return model(*batch.values())


def _words(model: nn.Module) -> Batch:
    return {"x": torch.randint(0, WORDS, (4, LENGTH))}


def _next_words(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch["x"])[:, :-1].transpose(1, 2), batch["x"][:, 1:])


# transformers and their parts

_SMALL = {"image_size": 32, "patch_size": 8, "num_classes": 10, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}
_WINDOWS = {"dim_conv_stem": 8, "dim_head": 8, "window_size": 4}
_VITS = {
    "ViT": _of("vit_pytorch", "ViT", **_SMALL),
    "SimpleViT": _of("vit_pytorch.simple_vit", "SimpleViT", **_SMALL),
    "CaiT": _of("vit_pytorch.cait", "CaiT", **_SMALL, cls_depth=1),
    "DeepViT": _of("vit_pytorch.deepvit", "DeepViT", **_SMALL),
    "XCiT": _of("vit_pytorch.xcit", "XCiT", **_SMALL, cls_depth=1),
    "PiT": _of("vit_pytorch.pit", "PiT", **{**_SMALL, "depth": (1, 1)}),
    "MaxViT": _of("vit_pytorch.max_vit", "MaxViT", num_classes=10, dim=16, depth=(1, 1), **_WINDOWS),
}
_rows("packages: transformers", "vit_pytorch", _VITS, images(32), classification)


def _decoder(**options: Any) -> Make:
    def make() -> nn.Module:
        package = importlib.import_module("x_transformers")
        layers = package.Decoder(dim=32, depth=2, heads=4, **options)
        return package.TransformerWrapper(num_tokens=WORDS, max_seq_len=32, attn_layers=layers)

    return make


_DECODERS = {
    "decoder (rotary, GLU, RMS norm)": _decoder(rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True),
    "decoder (ALiBi, norm of queries and keys)": _decoder(alibi_pos_bias=True, attn_qk_norm=True),
}
_rows("packages: transformers", "x_transformers", _DECODERS, _words, _next_words)
_PERFORMER = _of("performer_pytorch", "PerformerLM", num_tokens=WORDS, max_seq_len=LENGTH, dim=32, depth=2, heads=2)
_rows("packages: transformers", "performer_pytorch", {"PerformerLM": _PERFORMER}, _words, _next_words)
_LINFORMER = _of("linformer", "LinformerLM", num_tokens=WORDS, dim=32, seq_len=LENGTH, depth=2, heads=2, k=8)
_rows("packages: transformers", "linformer", {"LinformerLM": _LINFORMER}, _words, _next_words)
_NYSTROM = _of("nystrom_attention", "Nystromformer", dim=32, depth=2, heads=2, dim_head=16, num_landmarks=8)
_rows("packages: transformers", "nystrom_attention", {"Nystromformer": _NYSTROM}, _one(4, LENGTH, 32), _squared)
_SOFT_MOE = _of("soft_moe_pytorch", "SoftMoE", dim=32, seq_len=LENGTH, num_experts=4)
_rows("packages: transformers", "soft_moe_pytorch", {"SoftMoE": _SOFT_MOE}, _one(4, LENGTH, 32), _squared)


def _mamba() -> nn.Module:
    package = importlib.import_module("mambapy.mamba")
    return package.Mamba(package.MambaConfig(d_model=16, n_layers=2))


_rows("packages: transformers", "mambapy", {"Mamba": _mamba}, _one(2, LENGTH, 16), _squared)


class _Quantized(nn.Module):
    """Quantized features: their mean square, and the quantizer's own loss."""

    def __init__(self, quantizer: nn.Module, features: int) -> None:
        super().__init__()
        self.layer, self.quantizer = nn.Linear(32, features), quantizer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        quantized, *others = self.quantizer(self.layer(x))
        return quantized.square().mean() + sum(one.sum() for one in others if one.is_floating_point())


def _quantizer(name: str, features: int, **options: Any) -> Make:
    return lambda: _Quantized(_of("vector_quantize_pytorch", name, **options)(), features)


_QUANTIZERS = {
    "VectorQuantize": _quantizer("VectorQuantize", 32, dim=32, codebook_size=16, decay=0.8),
    "ResidualVQ": _quantizer("ResidualVQ", 32, dim=32, num_quantizers=3, codebook_size=16),
    "FSQ": _quantizer("FSQ", 3, levels=[8, 5, 5]),
    "LFQ": _quantizer("LFQ", 8, codebook_size=256, dim=8),
}
_rows("packages: transformers", "vector_quantize_pytorch", _QUANTIZERS, _one(4, LENGTH, 32), _own_loss)

# medicine


class _WithLoss(nn.Module):
    """A network and its loss."""

    def __init__(self, network: nn.Module, loss: nn.Module) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.loss(self.network(x), y)


def _monai(name: str, loss: str = "DiceLoss", **options: Any) -> Make:
    def make() -> nn.Module:
        network = _of("monai.networks.nets", name, spatial_dims=2, in_channels=1, out_channels=2, **options)()
        return _WithLoss(network, _of("monai.losses", loss, to_onehot_y=True, softmax=True)())

    return make


_PYRAMID = {"channels": (4, 8, 16), "strides": (2, 2)}
_MONAI = {
    "UNet": _monai("UNet", **_PYRAMID, num_res_units=1),
    "UNet (Dice and cross-entropy)": _monai("UNet", "DiceCELoss", **_PYRAMID),
    "UNet (generalized Dice, focal)": _monai("UNet", "GeneralizedDiceFocalLoss", **_PYRAMID),
    "BasicUNet (Tversky)": _monai("BasicUNet", "TverskyLoss", features=(4, 4, 8, 8, 8, 4)),
    "AttentionUnet": _monai("AttentionUnet", **_PYRAMID),
    "VNet": _monai("VNet"),
    "DynUNet": _monai("DynUNet", kernel_size=(3, 3, 3), strides=(1, 2, 2), upsample_kernel_size=(2, 2), filters=(4, 8, 8)),
    "UNETR": _monai("UNETR", img_size=32, feature_size=4, hidden_size=32, mlp_dim=64, num_heads=4),
}


def _segments(model: nn.Module) -> Batch:
    return {"x": torch.randn(2, 1, 32, 32), "y": torch.randint(0, 2, (2, 1, 32, 32))}


_rows("packages: images", "monai", _MONAI, _segments, _own_loss)


class _Restored(nn.Module):
    """Images through a convolution, by how much they still look like themselves."""

    def __init__(self, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.convolution, self.loss = nn.Conv2d(3, 3, 3, padding=1), loss

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.loss(self.convolution(x).sigmoid(), x.sigmoid())


def _restored(module: str, name: str, **options: Any) -> Make:
    return lambda: _Restored(_of(module, name, **options)())


_LIKENESS = ("GMSDLoss", "HaarPSILoss", "MDSILoss", "FSIMLoss", "VSILoss", "DSSLoss")
_rows("packages: images", "piq", {name: _restored("piq", name) for name in _LIKENESS}, _one(2, 3, 48, 48), _own_loss)
_SSIM = {"SSIMLoss": _restored("kornia.losses", "SSIMLoss", window_size=5)}
_rows("packages: images", "kornia", _SSIM, _one(2, 3, 48, 48), _own_loss)


class _Straightened(nn.Module):
    """A spatial transformer: images are turned as the network says."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.turn = nn.Conv2d(3, 8, 3), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turns = self.turn(self.convolution(x).mean((2, 3))).view(-1, 2, 3) * 0.1 + torch.eye(2, 3)
        return importlib.import_module("kornia.geometry").warp_affine(x, turns, (32, 32))


_rows("packages: images", "kornia", {"warp_affine": _Straightened}, _one(2, 3, 32, 32), _squared)

# learning of metrics

_CLASSES = {"num_classes": 4, "embedding_size": 8}
_METRIC_LOSSES: dict[str, dict[str, Any]] = {
    "TripletMarginLoss": {},
    "ContrastiveLoss": {},
    "NTXentLoss": {},
    "SupConLoss": {},
    "MultiSimilarityLoss": {},
    "CircleLoss": {},
    "LiftedStructureLoss": {},
    "FastAPLoss": {"num_bins": 5},
    "AngularLoss": {},
    "MarginLoss": {},
    "RankedListLoss": {"margin": 1.0, "Tn": 0.0},
    **{f"{name}Loss": _CLASSES for name in ("ArcFace", "CosFace", "SphereFace", "SubCenterArcFace", "ProxyNCA", "ProxyAnchor")},
    "SoftTripleLoss": _CLASSES,
    "LargeMarginSoftmaxLoss": _CLASSES,
}


class _Embedded(nn.Module):
    """A loss of labelled features."""

    def __init__(self, loss: str, miner: str = "", **options: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 8)
        self.loss = _of("pytorch_metric_learning.losses", loss, **options)()
        self.miner = _of("pytorch_metric_learning.miners", miner)() if miner else None

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        features = self.layer(x)
        return self.loss(features, y, self.miner(features, y) if self.miner is not None else None)


_METRICS: dict[str, Make] = {
    name: lambda name=name, options=options: _Embedded(name, **options) for name, options in _METRIC_LOSSES.items()
}
for _miner in ("MultiSimilarityMiner", "BatchHardMiner"):
    _METRICS[f"TripletMarginLoss ({_miner})"] = lambda miner=_miner: _Embedded("TripletMarginLoss", miner)


def _labelled(model: nn.Module) -> Batch:
    return {"x": torch.randn(16, 32), "y": torch.randint(0, 4, (16,))}


_rows("packages: metric learning", "pytorch_metric_learning", _METRICS, _labelled, _own_loss)

# densities, differential equations, Gaussian processes


def _with_context(model: nn.Module) -> Batch:
    return {"x": torch.randn(LENGTH, 4), "context": torch.randn(LENGTH, 2)}


def _conditional_likelihood(model: nn.Module, batch: Batch) -> torch.Tensor:
    return -model(batch["context"]).log_prob(batch["x"]).mean()


_FLOWS = {name: _of("zuko.flows", name, 4, 2, transforms=2, hidden_features=(16,)) for name in ("NSF", "MAF")}
_rows("packages: densities and equations", "zuko", _FLOWS, _with_context, _conditional_likelihood)


def _coupled() -> nn.Module:
    package = importlib.import_module("normflows")
    steps: list[nn.Module] = []
    for _ in range(3):
        steps += [package.flows.AffineCouplingBlock(package.nets.MLP([2, 16, 4])), package.flows.Permute(4, mode="swap")]
    return package.NormalizingFlow(package.distributions.base.DiagGaussian(4), steps)


def _divergence(model: Any, batch: Batch) -> torch.Tensor:
    return model.forward_kld(batch["x"])


_rows("packages: densities and equations", "normflows", {"RealNVP": _coupled}, _one(LENGTH, 4), _divergence)


class _Equation(nn.Module):
    """A network that says how a state changes, integrated over time."""

    def __init__(self, solver: str, method: str) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
        self.solver, self.method = solver, method

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        solve = getattr(importlib.import_module("torchdiffeq"), self.solver)
        options = {"adjoint_params": tuple(self.parameters())} if self.solver == "odeint_adjoint" else {}
        return solve(lambda t, y: self.network(y), x, torch.linspace(0, 1, 4), method=self.method, **options)[-1]


_SOLVERS: dict[str, Make] = {
    "rk4": lambda: _Equation("odeint", "rk4"),
    "dopri5": lambda: _Equation("odeint", "dopri5"),
    "euler (adjoint)": lambda: _Equation("odeint_adjoint", "euler"),
}
_rows("packages: densities and equations", "torchdiffeq", _SOLVERS, _one(4, 8), _squared)


class _Process(nn.Module):
    """The likelihood of an exact Gaussian process for its own data."""

    def __init__(self) -> None:
        super().__init__()
        package = importlib.import_module("gpytorch")

        class Model(package.models.ExactGP):
            def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
                super().__init__(x, y, likelihood)
                self.mean = package.means.ConstantMean()
                self.kernel = package.kernels.ScaleKernel(package.kernels.RBFKernel())

            def forward(self, x: torch.Tensor) -> Any:
                return package.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

        self.likelihood = package.likelihoods.GaussianLikelihood()
        x = torch.linspace(0, 1, 20)
        self.model: Any = Model(x, torch.sin(6 * x), self.likelihood)
        self.evidence = package.mlls.ExactMarginalLogLikelihood(self.likelihood, self.model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -self.evidence(self.model(*self.model.train_inputs), self.model.train_targets) + 0 * x.sum()


_rows("packages: densities and equations", "gpytorch", {"ExactGP": _Process}, _one(1), _own_loss)


class _Molecules(nn.Module):
    """A layer that turns as its input does."""

    def __init__(self) -> None:
        super().__init__()
        self.o3 = importlib.import_module("e3nn.o3")
        self.product = self.o3.FullyConnectedTensorProduct("4x0e+2x1o", "1x0e+1x1o+1x2e", "4x0e+2x1o")
        self.layer = self.o3.Linear("4x0e+2x1o", "2x0e+1x1o")

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        harmonics = self.o3.spherical_harmonics([0, 1, 2], places, normalize=True, normalization="component")
        return self.layer(self.product(x, harmonics))


def _placed(model: nn.Module) -> Batch:
    return {"x": torch.randn(4, 10), "places": torch.randn(4, 3)}


_rows("packages: densities and equations", "e3nn", {"FullyConnectedTensorProduct": _Molecules}, _placed, _squared)
_MAPS = ("orthogonal", "skew", "sphere", "positive_definite")


def _constrained(name: str) -> Make:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        getattr(importlib.import_module("geotorch"), name)(model[0], "weight")
        return model

    return make


_rows("packages: densities and equations", "geotorch", {name: _constrained(name) for name in _MAPS}, _one(4, 8), _squared)
