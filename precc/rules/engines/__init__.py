"""Pages of the findings that backends and the read-back make."""
