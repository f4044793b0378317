"""The conversion itself: from a checkpoint's tensors to those that the contract promises.

Read `flow.py` first. `group.py` is the arithmetic, one pure function that the live export calls too; everything else
here reads, places and writes.
"""
