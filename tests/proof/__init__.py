"""The proof: the engines' own code judges what is compiled, for every family and policy, and finds what is corrupted.

`python -m tests.proof matrix` judges every family, policy and engine; `--write` writes docs/verification.md anew.
`python -m tests.proof mutations` corrupts artifacts, and shows who finds out. The tests here compare both with the
page, so that it is always current.
"""
