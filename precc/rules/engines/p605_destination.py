"""The destination of a conversion is not free, or cannot be written.

`precc convert` writes into a new or an empty folder, or goes on in one that an interrupted conversion left. It refuses
any other: the folder of the source or one that lies in it or around it, a folder with files in it, one in which
another conversion is writing at this moment, and one whose unfinished conversion has another source, contract, shard
size or version of precc, so that its shards would not belong together. A shard of the source that changed since is
named with its size or its time. A finished conversion is refused as well, with the contract that it is for: what it
was made of is in no file, so the same command cannot know that it is done. Nothing in a refused folder is touched.
What the system refuses for another reason than room is this finding as well, in the system's own words: a file stands
in the place of a folder, this user may not write there, the name is too long, the disk fails.

An unfinished folder has a file `.precc-conversion`, which says what was being made. Give the same command again, or
remove the folder.
"""

from precc.diagnostics import Severity

CODE = "P605"
NAME = "destination"
SEVERITY = Severity.ERROR
