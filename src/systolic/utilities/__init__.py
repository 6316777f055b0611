"""Helpers that users may import: model summaries and the like."""
