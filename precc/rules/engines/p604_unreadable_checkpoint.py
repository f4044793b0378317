"""A checkpoint cannot be read as what it says it is.

A shard is missing, truncated or has a header that contradicts the file or itself; `config.json` is missing, no JSON or
describes no model; a file beside the weights, all of which are copied, is a named pipe, a link to nothing or may not be
read: all this is found before anything is written. Or reading failed half-way, as on a failing disk or where a file is
cut or changed while it is read. The finding names the file and what is wrong with it. Nothing of a damaged tensor is
written.

Fetch or copy the file again. What a conversion had finished before it stopped is kept: give the same command again.
"""

from precc.diagnostics import Severity

CODE = "P604"
NAME = "unreadable-checkpoint"
SEVERITY = Severity.ERROR
