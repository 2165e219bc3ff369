"""Building blocks for PyTorch models."""
