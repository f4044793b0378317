"""`convert` on a GPU against the CPU, file by file; needs precc, torch, safetensors and pytest, and no test runner.

    PYTHONPATH=tests python tests/converter/gpu_check.py [cuda]

The cases are those of `test_convert.py`. Exit status 1 if a byte of any file differs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from converter.checkpoints import content
from converter.conversions import case
from converter.test_convert import CASES
from rollout.support import SMALL


def main(device: str) -> int:
    """This prints one line a case and returns how many differ."""
    failed = 0
    for name, (model, policy, options) in CASES.items():
        with TemporaryDirectory() as folder:
            made = case(Path(folder), SMALL[model], policy, **options)
            wanted = content(made.convert(Path(folder) / "cpu"))
            found = content(made.convert(Path(folder) / device, device=device, workers=2))
        unlike = sorted(file for file in wanted.keys() | found.keys() if wanted.get(file) != found.get(file))
        failed += bool(unlike)
        size = sum(map(len, wanted.values()))
        sys.stdout.write(f"{name:40} {', '.join(unlike) or f'the same {len(wanted)} files, {size:,} bytes'}\n")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1] if sys.argv[1:] else "cuda"), 1))
