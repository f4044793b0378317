"""What was compiled is missing, edited or of another contract.

`precc convert` takes the contract, and the configuration that the server will read, from the folder that
`precc compile -o` wrote. Here a file of it is missing or is not of the contract beside it; the checkpoint would load as
something else than it is.

Compile the policy again, for all targets that it names, and give that folder as `--contract`.
"""

from precc.diagnostics import Severity

CODE = "P608"
NAME = "compiled-folder"
SEVERITY = Severity.ERROR
