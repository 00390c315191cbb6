"""Operators of ONNX that fusedops does not have, with the reason and what to do instead."""

from .schema import Absent

_STRINGS = "strings: turn text into numbers before the network"
_OPTIONAL = "optional values: give the network a tensor, or export it without"
RECORDS = {
    "ai.onnx.ml.*": Absent("models that are not networks, such as support vectors: compute them before or after"),
    "ai.onnx.preview.training.*": Absent("training: export the network for inference"),
    "ImageDecoder": Absent("image decoding: decode before the network"),
    "Optional": Absent(_OPTIONAL),
    "OptionalGetElement": Absent(_OPTIONAL),
    "OptionalHasElement": Absent(_OPTIONAL),
    "RegexFullMatch": Absent(_STRINGS),
    "StringConcat": Absent(_STRINGS),
    "StringNormalizer": Absent(_STRINGS),
    "StringSplit": Absent(_STRINGS),
}
