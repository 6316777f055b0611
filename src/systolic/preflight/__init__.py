"""Compile a step for a TPU slice that is not here, and say what it would do there."""
