"""A temporal fusion transformer of pytorch-forecasting on six noisy sines."""
# ruff: noqa: T201

import json

import lightning.pytorch as pl
import numpy as np
import pandas as pd
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor
from pytorch_forecasting import QuantileLoss, TemporalFusionTransformer, TimeSeriesDataSet
from pytorch_forecasting.data import GroupNormalizer

pl.seed_everything(1)
noise, time = np.random.default_rng(0), np.arange(60)
frames = [
    pd.DataFrame(
        {
            "series": str(series), "time": time, "month": [str(month % 12) for month in time],
            "value": np.sin(time / 5 + series) + 2 + series + 0.1 * noise.normal(size=60),
        }
    )
    for series in range(6)
]  # fmt: skip
data = pd.concat(frames, ignore_index=True)
training = TimeSeriesDataSet(
    data[data.time <= 48], time_idx="time", target="value", group_ids=["series"], min_encoder_length=6, max_encoder_length=12,
    min_prediction_length=1, max_prediction_length=6, static_categoricals=["series"], time_varying_known_categoricals=["month"],
    time_varying_known_reals=["time"], time_varying_unknown_reals=["value"],
    target_normalizer=GroupNormalizer(groups=["series"], transformation="softplus"), add_relative_time_idx=True,
    add_target_scales=True, add_encoder_length=True,
)  # fmt: skip
validation = TimeSeriesDataSet.from_dataset(training, data, predict=True, stop_randomization=True)
loaders = [one.to_dataloader(train=False, batch_size=32, num_workers=0) for one in (training, validation)]
model = TemporalFusionTransformer.from_dataset(
    training, learning_rate=0.03, hidden_size=8, attention_head_size=2, dropout=0.0, hidden_continuous_size=4,
    loss=QuantileLoss(), log_interval=0, optimizer="adam",
)  # fmt: skip
trainer = pl.Trainer(
    max_epochs=2, accelerator="cpu", devices=1, gradient_clip_val=0.1, limit_train_batches=5, enable_progress_bar=False,
    callbacks=[EarlyStopping(monitor="val_loss"), LearningRateMonitor()],
)  # fmt: skip
trainer.fit(model, *loaders)
options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
predicted = model.predict(loaders[1], trainer_kwargs=options)
print("RESULT", json.dumps([{k: float(v) for k, v in trainer.callback_metrics.items()}, predicted.cpu().tolist()]))
