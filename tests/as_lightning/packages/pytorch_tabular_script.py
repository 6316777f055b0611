"""Models of pytorch_tabular, which keeps its logits as arrays and restores the best checkpoint, on a made-up table."""
# ruff: noqa: T201

import json

import numpy as np
import pandas as pd
import pytorch_lightning as pl
from pytorch_tabular import TabularModel
from pytorch_tabular.config import DataConfig, OptimizerConfig, TrainerConfig
from pytorch_tabular.models import CategoryEmbeddingModelConfig, FTTransformerConfig

noise = np.random.default_rng(0)
table = pd.DataFrame({f"x{i}": noise.normal(size=400).astype("float32") for i in range(4)})
table["kind"] = noise.integers(0, 5, 400).astype(str)
table["target"] = ((table.x0 + (table.kind.astype(int) - 2) * table.x1) > 0).astype(int)
results = []
for config in (
    CategoryEmbeddingModelConfig(task="classification", layers="16-8", activation="ReLU", learning_rate=1e-2),
    FTTransformerConfig(
        task="classification", num_heads=2, num_attn_blocks=2, input_embed_dim=8, attn_dropout=0, ff_dropout=0,
        add_norm_dropout=0,
    ),
):  # fmt: skip
    pl.seed_everything(1)
    model = TabularModel(
        data_config=DataConfig(target=["target"], continuous_cols=[f"x{i}" for i in range(4)], categorical_cols=["kind"]),
        model_config=config,
        optimizer_config=OptimizerConfig(),
        trainer_config=TrainerConfig(
            batch_size=64, max_epochs=2, accelerator="cpu", devices=1, progress_bar="none", load_best=True,
            checkpoints="valid_loss", checkpoints_path="saved", early_stopping="valid_loss",
        ),
        verbose=False,
    )  # fmt: skip
    model.fit(train=table[:300], validation=table[300:])
    results.append([model.evaluate(table[300:], verbose=False), model.predict(table[300:304]).to_numpy().tolist()])
print("RESULT", json.dumps(results))
