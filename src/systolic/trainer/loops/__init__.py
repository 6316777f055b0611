"""The loops over batches: fit, evaluation, prediction."""
