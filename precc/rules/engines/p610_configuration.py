"""The configuration of a checkpoint is not that of the contract.

A server believes `config.json`, and for some methods `hf_quant_config.json`, not the weights: BF16 bytes are taken for
FP8 codes and the other way round, without an error. `precc audit` compares both files with what was compiled, with the
contract, and so with each other: the format that each module is declared in, the KV cache, and whatever else decides
numbers. Where the files name this contract they are compared word by word; where another tool wrote them, by what they
mean under the grammar of their method. It also finds the digest of another contract, in them or in the shards, and a
`config.json` without a `quantization_config` beside the files of a conversion: a file that stayed behind, or that was
copied from the source.

`config.json` may also describe another model than the weights: more layers, other widths, tied embeddings, another
dtype. Every field that decides a tensor is compared with what the contract was compiled for, by `precc audit` and,
before it writes anything, by `precc convert`. Multi-token-prediction layers that are declared and not stored are no
difference. With `--source` every key has to be that of the source, those that decide no tensor (`rope_theta`) as well;
of a checkpoint that another tool wrote, every key that both files have.

Take the files that `precc compile` wrote, or convert again; or audit against the contract that is named.
"""

from precc.diagnostics import Severity

CODE = "P610"
NAME = "configuration"
SEVERITY = Severity.ERROR
