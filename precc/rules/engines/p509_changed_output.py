"""A compiled folder is not what its compile wrote.

`precc compile` lists every file that it writes in `MANIFEST.json`, with its SHA-256, beside the digest of the
contract. A file that is missing, was changed or comes from another compile may decide otherwise than the contract
says, and each engine reads its own file only. The finding names the file.

`precc verify` finds this. Change the policy rather than what was made from it, and compile again.
"""

from precc.diagnostics import Severity

CODE = "P509"
NAME = "changed-output"
SEVERITY = Severity.ERROR
