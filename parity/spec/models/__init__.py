"""Specifications of models: one file for each kind, with its fields, its leaves, its memory and its data.

Each is a frozen dataclass. A new one is a file here, its name below, and a module of its `kind` on each side.
"""

from parity.spec.models.base import ModelBase, WideLayer
from parity.spec.models.cnn import CnnSpec
from parity.spec.models.gpt import GptSpec
from parity.spec.models.leaves import BUFFERS, Kind, ParamSpec
from parity.spec.models.linear import LinearSpec
from parity.spec.models.mlp import MlpSpec

__all__ = [
    "BUFFERS",
    "CnnSpec",
    "GptSpec",
    "Kind",
    "LinearSpec",
    "MlpSpec",
    "ModelBase",
    "ModelSpec",
    "ParamSpec",
    "WideLayer",
]

ModelSpec = MlpSpec | CnnSpec | GptSpec | LinearSpec
