"""Pages of the findings that `precc import` makes."""
