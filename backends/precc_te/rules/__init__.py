"""This engine's own checks, one a file; each module's docstring is its page."""
