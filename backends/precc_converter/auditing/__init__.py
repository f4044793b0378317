"""The audit: whether a checkpoint, whoever wrote it, holds what a contract promises.

Read `flow.py` first. All but `values.py` work on headers and JSON, without torch.
"""
