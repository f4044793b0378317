"""Rules on what was decided."""
