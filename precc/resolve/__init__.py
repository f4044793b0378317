"""From what was written to what is decided: names, then the cascade, then the binding to a model.

`names` and `policy` need no model and import none; `bind` does.
"""
