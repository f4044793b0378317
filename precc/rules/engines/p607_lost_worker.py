"""A worker process died.

The worker processes of `precc convert` end only when they are told to. One that vanished was killed: by the system for
want of memory, by a job scheduler, or by hand. Nothing that it was writing is taken for finished.

Give the same command again. If memory is short, say fewer `--workers`: each holds one group of tensors at a time, as
`precc convert --help` says.
"""

from precc.diagnostics import Severity

CODE = "P607"
NAME = "lost-worker"
SEVERITY = Severity.ERROR
