"""From what another tool wrote to a policy that decides the same for every tensor.

    Source ─find_reader→ reader ─read(ModelGraph)→ Reading ─synthesize→ text ─compile, compare→ Imported

`reading.py` is the interface that a reader of one tool's files has; the readers lie in `readers/`, one a module.
"""
