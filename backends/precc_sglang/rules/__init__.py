"""What SGLang cannot run, and what it would run wrongly: one finding a file."""
