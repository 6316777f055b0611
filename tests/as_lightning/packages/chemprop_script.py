"""A message passing network of chemprop on twelve molecules."""
# ruff: noqa: T201

import json

import lightning.pytorch as pl
import numpy as np
from chemprop import data, models, nn

pl.seed_everything(1)
molecules = ["CCO", "CCN", "c1ccccc1", "CC(=O)O", "CCCC", "C1CCCCC1", "CCCl", "OCCO", "CC#N", "c1ccncc1", "CNC", "CCOC"]
points = [data.MoleculeDatapoint.from_smi(one, np.array([float(len(one))])) for one in molecules]
training, validation = data.MoleculeDataset(points[:8]), data.MoleculeDataset(points[8:])
scaler = training.normalize_targets()
validation.normalize_targets(scaler)
loaders = [data.build_dataloader(one, num_workers=0, batch_size=4, shuffle=False) for one in (training, validation)]
output = nn.UnscaleTransform.from_standard_scaler(scaler)
head = nn.RegressionFFN(input_dim=32, hidden_dim=16, output_transform=output)
model = models.MPNN(nn.BondMessagePassing(d_h=32), nn.MeanAggregation(), head, True, [nn.metrics.RMSE(), nn.metrics.MAE()])
trainer = pl.Trainer(
    logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu", devices=1, max_epochs=3
)
trainer.fit(model, *loaders)
trained = {name: float(value) for name, value in trainer.callback_metrics.items()}
tested = trainer.test(model, loaders[1], verbose=False)
print("RESULT", json.dumps([trained, tested, [one.tolist() for one in trainer.predict(model, loaders[1])]]))
