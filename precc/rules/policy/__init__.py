"""Rules on one policy without a model."""
