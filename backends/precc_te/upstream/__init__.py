"""The installed engines' own code judges the artifacts: Megatron-Core's, over a TransformerEngine without kernels.

`judge` starts with a contract and its artifacts; `available` says whether the installed versions are those that they
are for; `structure` what is built; `process` and `worker` are the two ends of a pipe, `wire` what goes over it;
`trial`, with `standin`, `arguments` and `models`, runs in the worker, `recipes` in a fresh process each; `findings`
compares.
"""

from precc_te.upstream.judge import Judge

__all__ = ["Judge"]
