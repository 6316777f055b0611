"""Models of NeuralForecast, each a LightningModule that makes its own Trainer, on four noisy sines."""
# ruff: noqa: T201

import json

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.models import LSTM, NHITS

noise, days = np.random.default_rng(0), pd.date_range("2020-01-01", periods=100, freq="D")
values = [np.sin(np.arange(100) / 5 + i) + i + 0.1 * noise.normal(size=100) for i in range(4)]
data = pd.concat(
    [pd.DataFrame({"unique_id": str(i), "ds": days, "y": value.astype("float32")}) for i, value in enumerate(values)]
)
# all windows in every step: which ones are drawn would be another choice
common = {
    "h": 6, "input_size": 12, "max_steps": 10, "val_check_steps": 5, "batch_size": 4, "windows_batch_size": None,
    "random_seed": 1, "enable_progress_bar": False, "accelerator": "cpu", "devices": 1, "logger": False,
    "enable_checkpointing": False,
}  # fmt: skip
results = []
for model in (NHITS(**common), LSTM(**common, encoder_hidden_size=16, decoder_hidden_size=16)):
    forecast = NeuralForecast(models=[model], freq="D")
    forecast.fit(df=data, val_size=12)
    curves = [[float(loss) for _, loss in curve] for curve in (model.train_trajectories, model.valid_trajectories)]
    results.append([curves, forecast.predict().iloc[:, -1].tolist()])
print("RESULT", json.dumps(results))
