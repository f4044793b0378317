"""The destination takes no more.

`precc convert` knows the size of every file before it writes the first, and compares what is still to be written with
what is free on the disk. This finding says both figures; or what the system said when a write failed all the same,
because a quota was reached, another process filled the disk, or its file system holds no file of that size.

Make room, or name a folder elsewhere. Shards that were finished are kept: give the same command again.
"""

from precc.diagnostics import Severity

CODE = "P606"
NAME = "no-room"
SEVERITY = Severity.ERROR
