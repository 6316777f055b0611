"""GPT-2 124M and ResNet-50 by hand in JAX, and as PyTorch modules for systolic."""
