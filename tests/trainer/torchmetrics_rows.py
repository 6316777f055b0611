"""Classes of torchmetrics with arguments and data for them: what they are updated with, by row."""

from __future__ import annotations

import importlib
from typing import Any

import torch

ROWS = 24
FAMILIES = ("classification", "regression", "clustering", "nominal", "retrieval", "segmentation", "image", "audio", "text")
AGGREGATION = ("SumMetric", "MeanMetric", "MaxMetric", "MinMetric", "CatMetric", "RunningMean", "RunningSum")

LEFT_OUT = {
    "needs a package that is not installed, or weights from the network": {
        "DeepImageStructureAndTextureSimilarity", "FrechetInceptionDistance", "InceptionScore", "KernelInceptionDistance",
        "LearnedPerceptualImagePatchSimilarity", "MemorizationInformedFrechetInceptionDistance", "PerceptualPathLength",
        "ARNIQA", "CLIPImageQualityAssessment", "CLIPScore", "BERTScore", "InfoLM", "ROUGEScore", "SacreBLEUScore",
        "DeepNoiseSuppressionMeanOpinionScore", "NonIntrusiveSpeechQualityAssessment", "PerceptualEvaluationSpeechQuality",
        "ShortTimeObjectiveIntelligibility", "SpeechReverberationModulationEnergyRatio", "LipVertexError", "ClusterAccuracy",
    },
    "did not end within a minute, or three": {"HausdorffDistance", "VisualInformationFidelity"},
    "takes dicts of named images": {"QualityWithNoReference", "SpatialDistortionIndex"},
    "takes text": {
        "BLEUScore", "CHRFScore", "CharErrorRate", "EditDistance", "ExtendedEditDistance", "MatchErrorRate", "SQuAD",
        "TranslationEditRate", "WordErrorRate", "WordInfoLost", "WordInfoPreserved",
    },
}  # fmt: skip
"""Why classes have no row."""

ARGUMENTS: dict[str, dict[str, Any]] = {
    "FBetaScore": {"beta": 0.5}, "PrecisionAtFixedRecall": {"min_recall": 0.5}, "RecallAtFixedPrecision": {"min_precision": 0.5},
    "SensitivityAtSpecificity": {"min_specificity": 0.5}, "SpecificityAtSensitivity": {"min_sensitivity": 0.5},
    "BinaryFairness": {"num_groups": 2}, "BinaryGroupStatRates": {"num_groups": 2}, "CriticalSuccessIndex": {"threshold": 0.5},
    "MinkowskiDistance": {"p": 3}, "FleissKappa": {"mode": "counts"},
    "PeakSignalNoiseRatio": {"data_range": 1.0},
    "PeakSignalNoiseRatioWithBlockedEffect": {"data_range": 1.0}, "MultiScaleStructuralSimilarityIndexMeasure": {"betas": (0.4, 0.6)},
    "RunningMean": {"window": 2}, "RunningSum": {"window": 2},
}  # fmt: skip
"""By the end of the class's name."""

CODED = {"CramersV", "PearsonsContingencyCoefficient", "TheilsU", "TschuprowsT"}
TWO_DIMENSIONAL = {"CosineSimilarity", "JensenShannonDivergence", "KLDivergence"}
EMBEDDED = {"CalinskiHarabaszScore", "DaviesBouldinScore", "DunnIndex"}


def _uniform(seed: int, *shape: int) -> torch.Tensor:
    return torch.rand(ROWS, *shape, generator=torch.Generator().manual_seed(seed))


def _integers(seed: int, below: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, below, (ROWS, *shape), generator=torch.Generator().manual_seed(seed))


def _classification(name: str) -> tuple[dict[str, Any], tuple[torch.Tensor, ...]]:
    if name.startswith("Multiclass"):
        return {"num_classes": 3}, (_uniform(3, 3).softmax(-1), _integers(4, 3))
    if name.startswith("Multilabel"):
        return {"num_labels": 3}, (_uniform(3, 3), _integers(4, 2, 3))
    groups = (_integers(5, 2),) if name in ("BinaryFairness", "BinaryGroupStatRates") else ()
    return {}, (_uniform(3), _integers(4, 2), *groups)


def _data(family: str, name: str) -> tuple[torch.Tensor, ...]:
    if name in TWO_DIMENSIONAL:
        return _uniform(3, 3).softmax(-1), _uniform(4, 3).softmax(-1)
    if name in EMBEDDED:
        return _uniform(3, 2), _integers(4, 3)
    if name == "ContinuousRankedProbabilityScore":
        return _uniform(3, 5), _uniform(4)
    if name == "FleissKappa":
        return (_integers(3, 5, 4),)
    if name == "Perplexity":
        return _uniform(3, 6, 5), _integers(4, 5, 6)
    if name == "TotalVariation":
        return (_uniform(3, 3, 16, 16),)
    if name == "ComplexScaleInvariantSignalNoiseRatio":
        return _uniform(3, 9, 8, 2), _uniform(4, 9, 8, 2)
    if name == "PeakSignalNoiseRatioWithBlockedEffect":
        return _uniform(3, 1, 16, 16), _uniform(4, 1, 16, 16)
    if name == "MultiScaleStructuralSimilarityIndexMeasure":
        return _uniform(3, 1, 41, 41), _uniform(4, 1, 41, 41)
    return {
        "regression": (_uniform(3) + 0.5, _uniform(4) + 0.4),
        "aggregation": (_uniform(3) + 0.5,),
        "clustering": (_integers(3, 3), _integers(4, 4)),
        "nominal": (_integers(3, 4), _integers(4, 4)),
        "retrieval": (_uniform(3), _integers(4, 2), torch.arange(ROWS) // 6),
        "segmentation": (_integers(3, 3, 8, 8), _integers(4, 3, 8, 8)),
        "image": (_uniform(3, 3, 16, 16), _uniform(4, 3, 16, 16)),
        "audio": (_uniform(3, 2, 64) - 0.5, _uniform(4, 2, 64) - 0.5),
    }[family]


def names(family: str) -> list[str]:
    """The classes of a family that hold numbers of their own; `Accuracy(task=...)` gives an object of one of them."""
    if family == "aggregation":
        return list(AGGREGATION)
    found = importlib.import_module(f"torchmetrics.{family}").__all__
    if family == "classification":
        found = [name for name in found if name.startswith(("Binary", "Multiclass", "Multilabel")) or name == "Dice"]
    left_out = set().union(*LEFT_OUT.values())
    return [name for name in found if name not in left_out]


def row(family: str, name: str) -> tuple[Any, dict[str, Any], tuple[torch.Tensor, ...]]:
    """A class, its arguments, and the tensors that it is updated with."""
    arguments, data = _classification(name) if family == "classification" else ({}, _data(family, name))
    if name in CODED:
        arguments = {"num_classes": 4}
    if family == "segmentation":
        arguments = {"num_classes": 3}
    if name == "PermutationInvariantTraining":
        functional = importlib.import_module("torchmetrics.functional.audio")
        arguments = {"metric_func": functional.scale_invariant_signal_noise_ratio}
    more = next((found for ending, found in ARGUMENTS.items() if name.endswith(ending)), {})
    home = importlib.import_module("torchmetrics" if family == "aggregation" else f"torchmetrics.{family}")
    return getattr(home, name), {**arguments, **more}, data
