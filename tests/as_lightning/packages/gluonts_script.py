"""Estimators of GluonTS, which build their Trainers themselves, on four noisy sines."""
# ruff: noqa: T201

import json

import lightning.pytorch as pl
import numpy as np
import pandas as pd
from gluonts.dataset.pandas import PandasDataset
from gluonts.torch import DeepAREstimator, PatchTSTEstimator, SimpleFeedForwardEstimator

noise, days = np.random.default_rng(0), pd.date_range("2020-01-01", periods=120, freq="D")
values = [np.sin(np.arange(120) / 5 + i) + i + 3 + 0.1 * noise.normal(size=120) for i in range(4)]
data = PandasDataset({str(i): pd.DataFrame({"target": value.astype("float32")}, index=days) for i, value in enumerate(values)})
results = []
for estimator, options in (
    (SimpleFeedForwardEstimator, {}),
    (DeepAREstimator, {"freq": "D", "dropout_rate": 0.0}),
    (PatchTSTEstimator, {"patch_len": 4, "dropout": 0.0}),
):
    pl.seed_everything(1)
    trained = estimator(
        prediction_length=6, context_length=16, batch_size=8, num_batches_per_epoch=5, **options,
        trainer_kwargs={"max_epochs": 2, "accelerator": "cpu", "devices": 1, "enable_progress_bar": False},
    ).train_model(data)  # fmt: skip
    results.append({name: float(value) for name, value in trained.trainer.callback_metrics.items()})
print("RESULT", json.dumps(results))
