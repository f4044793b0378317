"""An index disagrees with the shards beside it.

`model.safetensors.index.json` says which file holds which tensor. Servers follow it: SGLang drops a shard that it does
not list, `transformers` opens the file that it names. `precc audit` compares it with the headers, tensor by tensor, and
its `total_size` with the bytes that are there (a warning: only memory is planned by it). Several shards without an
index are this finding too, and so is an index that lists a path outside its folder, in `precc convert` as well.

Write the index anew from the headers, or fetch the checkpoint again.
"""

from precc.diagnostics import Severity

CODE = "P609"
NAME = "index"
SEVERITY = Severity.ERROR
