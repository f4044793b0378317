"""What the converter refuses, one check a module."""
