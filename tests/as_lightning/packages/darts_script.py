"""Models of darts on a sine."""
# ruff: noqa: T201

import json

import numpy as np
import pandas as pd
import pytorch_lightning as pl
from darts import TimeSeries
from darts.models import NBEATSModel, RNNModel, TransformerModel

pl.seed_everything(1)
days = pd.date_range("2020-01-01", periods=120, freq="D")
series = TimeSeries.from_times_and_values(days, (np.sin(np.arange(120) / 5) + 2).astype("float32"))
common = {
    "n_epochs": 2, "batch_size": 16, "random_state": 1,
    "pl_trainer_kwargs": {"accelerator": "cpu", "devices": 1, "enable_progress_bar": False, "enable_model_summary": False},
}  # fmt: skip
results = []
for model in (
    NBEATSModel(12, 4, num_stacks=2, num_blocks=1, num_layers=2, layer_widths=16, **common),
    RNNModel(input_chunk_length=12, training_length=16, model="LSTM", hidden_dim=8, **common),
    TransformerModel(
        12, 4, d_model=8, nhead=2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=16, dropout=0.0, **common
    ),
):
    model.fit(series[:90], val_series=series[90:])
    losses = {name: float(value) for name, value in model.trainer.callback_metrics.items()}
    results.append([losses, model.predict(4).values().tolist()])
print("RESULT", json.dumps(results))
