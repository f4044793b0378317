"""Model graphs: every tensor of a model, from a name, a `config.json` or safetensors headers."""

from precc.graph.catalogue import catalogue
from precc.graph.errors import ModelError
from precc.graph.families import vocabulary
from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc.graph.reading import read_model

__all__ = ["EXPERT", "ModelError", "ModelGraph", "Tensor", "catalogue", "read_model", "vocabulary"]
