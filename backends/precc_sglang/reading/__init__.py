"""A model of SGLang's own front door: what it makes of the artifacts, for every tensor."""

from precc_sglang.reading.read import read_back

__all__ = ["read_back"]
