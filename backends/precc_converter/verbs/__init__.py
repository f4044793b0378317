"""The verbs that the converter adds to `precc`, one a module."""
