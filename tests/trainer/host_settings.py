"""A file of the user's with values that steps of other files read."""

import torch

alpha = 1.0
weight = torch.tensor(1.0)


class Options:
    beta = 1.0
    weight = torch.tensor(1.0)


def current_alpha() -> float:
    return alpha
