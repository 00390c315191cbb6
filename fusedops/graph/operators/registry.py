"""The operators: one record each, in files by family, of which a network imports those that it needs."""

from __future__ import annotations

import functools
import inspect
import math
from importlib import import_module
from typing import TYPE_CHECKING

from ..ir.errors import BadNode
from .schema import Absent, Operator, Rewrite

if TYPE_CHECKING:  # and for tools that look for statements of import
    from . import (  # noqa: F401
        activation,
        attention,
        bitwise,
        control_flow,
        conv,
        deform_conv,
        detection,
        early_onnx,
        elementwise,
        gather_scatter,
        grid_sample,
        int16_tables,
        learned,
        linear_algebra,
        matmul,
        matmul_nbits,
        norm,
        onnx_sequences,
        padding,
        pool,
        qdq,
        qlinear,
        random_numbers,
        ranges,
        reduce,
        resize,
        rnn,
        sdpa,
        shape_ops,
        signal,
        trees,
        unsupported,
    )
    from .contrib import (  # noqa: F401
        as_onnx,
        fused,
        grouped_attention,
        multi_head_attention,
        nchwc,
        quantized_ops,
    )

FAMILIES = {  # the file with the record of each operator
    "unsupported": """
        ImageDecoder Optional OptionalGetElement OptionalHasElement RegexFullMatch StringConcat StringNormalizer
        StringSplit ai.onnx.ml.* ai.onnx.preview.training.*
    """,
    "activation": """
        Activation Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Selu Sigmoid Softplus Softsign Tanh
    """,
    "attention": "Attention RotaryEmbedding",
    "sdpa": "SoftmaxProduct",
    "control_flow": "If Loop Scan ScanOfBatch",
    "conv": "Conv ConvTranspose",
    "qlinear": """
        DynamicRequantize Lookup QuantizedAdd QuantizedAveragePool QuantizedConv QuantizedGlobalAveragePool
        QuantizedLinear QuantizedMul QuantizedSub Requantize
    """,
    "elementwise": """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh Cast CastLike Ceil Clip Cos Cosh Div Equal Erf Exp Floor
        Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log Max Mean Min Mod Mul Narrow Neg Not Or PRelu Pow
        Reciprocal Round Shrink Sign Sin Sinh Sqrt Sub Sum Tan Where Xor
    """,
    "matmul_nbits": "DequantizeBits LinearBits MatMulBits",
    "gather_scatter": """
        Compress EyeLike Gather GatherElements GatherND NonZero OneHot ReverseSequence Scatter ScatterElements
        ScatterND TensorScatter Trilu Unique
    """,
    "ranges": "Range",
    "bitwise": "BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor",
    "contrib.fused": """
        MoveAxis SimplifiedLayerNormalization com.microsoft.BiasGelu com.microsoft.BiasSoftmax
        com.microsoft.EmbedLayerNormalization com.microsoft.FastGelu com.microsoft.FusedConv
        com.microsoft.FusedGemm com.microsoft.FusedMatMul com.microsoft.FusedMatMulActivation
        com.microsoft.GatherND com.microsoft.Gelu com.microsoft.GroupNorm com.microsoft.NhwcConv
        com.microsoft.NhwcFusedConv com.microsoft.NhwcMaxPool com.microsoft.Pad com.microsoft.QuickGelu
        com.microsoft.Range com.microsoft.SkipGroupNorm com.microsoft.SkipLayerNormalization
        com.microsoft.SkipSimplifiedLayerNormalization com.microsoft.TransposeMatMul com.microsoft.Trilu
    """,
    "contrib.grouped_attention": "com.microsoft.GroupQueryAttention",
    "contrib.multi_head_attention": """
        AttentionMask com.microsoft.Attention com.microsoft.MultiHeadAttention com.microsoft.RotaryEmbedding
    """,
    "contrib.quantized_ops": """
        com.microsoft.DequantizeLinear com.microsoft.DynamicQuantizeLSTM com.microsoft.DynamicQuantizeMatMul
        com.microsoft.MatMulIntegerToFloat com.microsoft.MatMulNBits com.microsoft.QAttention
        com.microsoft.QEmbedLayerNormalization com.microsoft.QGemm com.microsoft.QLinearAdd
        com.microsoft.QLinearAveragePool com.microsoft.QLinearConcat com.microsoft.QLinearConv
        com.microsoft.QLinearGlobalAveragePool com.microsoft.QLinearLeakyRelu com.microsoft.QLinearMul
        com.microsoft.QLinearReduceMean com.microsoft.QLinearSigmoid com.microsoft.QLinearSoftmax
        com.microsoft.QLinearWhere com.microsoft.QuantizeLinear
    """,
    "contrib.nchwc": """
        com.microsoft.nchwc.AveragePool com.microsoft.nchwc.Conv com.microsoft.nchwc.GlobalAveragePool
        com.microsoft.nchwc.GlobalMaxPool com.microsoft.nchwc.MaxPool com.microsoft.nchwc.ReorderInput
        com.microsoft.nchwc.ReorderOutput com.microsoft.nchwc.Upsample
    """,
    "contrib.as_onnx": """
        com.microsoft.CDist com.microsoft.CropAndResize com.microsoft.ExpandDims com.microsoft.GridSample
        com.microsoft.MatMulBnb4 com.microsoft.Unique
    """,
    "norm": """
        BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization LogSoftmax LpNormalization
        RMSNormalization Softmax
    """,
    "shape_ops": """
        Concat Constant ConstantOfShape DepthToSpace Dropout Expand Flatten Identity Reshape Shape Size Slice
        SpaceToDepth Split Squeeze Tile Transpose Unsqueeze
    """,
    "pool": "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxUnpool",
    "matmul": "Det Einsum Gemm GroupedMatMul Linear MatMul",
    "qdq": """
        ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear
        com.microsoft.GatherBlockQuantized
    """,
    "rnn": "CheckedLengths DynamicLSTM GRU LSTM ProjectedLSTM RNN",
    "reduce": """
        ArgMax ArgMin CumProd CumSum Hardmax ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
        ReduceMin ReduceProd ReduceSum ReduceSumSquare TopK
    """,
    "resize": "Resize Upsample",
    "deform_conv": "DeformConv",
    "grid_sample": "AffineGrid Col2Im GridSample MaxRoiPool NonMaxSuppression RoiAlign",
    "onnx_sequences": """
        ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength
        SequenceMap SplitToSequence
    """,
    "padding": "Pad",
    "signal": "DFT MelWeightMatrix STFT TfIdfVectorizer",
    "random_numbers": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "early_onnx": """
        Affine Crop ImageScaler MeanVarianceNormalization ParametricSoftplus Scale ScaledTanh ThresholdedRelu
    """,
    "linear_algebra": """
        Accumulated Cholesky LogDeterminant MatrixExponential NanMedian PseudoInverse QR SearchSorted
        SingularDecomposition SingularValues Solve SolveTriangular SymmetricEigen com.microsoft.Inverse
    """,
    "detection": "DetectionPostProcess SoftNonMaxSuppression",
    "int16_tables": "LookedUpInt16 SoftmaxInt16",
    "learned": """
        ai.onnx.ml.ArrayFeatureExtractor ai.onnx.ml.Binarizer ai.onnx.ml.Imputer ai.onnx.ml.LabelEncoder
        ai.onnx.ml.LinearClassifier ai.onnx.ml.LinearRegressor ai.onnx.ml.Normalizer ai.onnx.ml.Scaler
        ai.onnx.ml.ZipMap
    """,
    "trees": "ai.onnx.ml.TreeEnsemble ai.onnx.ml.TreeEnsembleClassifier ai.onnx.ml.TreeEnsembleRegressor",
}
_FILES = {name: file for file, names in FAMILIES.items() for name in names.split()}


class _Records(dict):
    """What `select` makes of each record, by its operator's name; where that is None, there is nothing of that name.
    A record comes with the first question for it."""

    def __init__(self, select):
        super().__init__()
        self._select = select

    def _made(self, name):
        found = self._select(import_module("." + _FILES[name], __package__).RECORDS[name])
        return None if found is None else self.setdefault(name, found)

    def __missing__(self, name):
        if name not in self:
            raise KeyError(name)
        return super().__getitem__(name)

    def get(self, name, default=None):
        return self[name] if name in self else default  # noqa: SIM401

    def __contains__(self, name):
        return dict.__contains__(self, name) or name in _FILES and self._made(name) is not None

    def __iter__(self):
        return (name for name in _FILES if name in self)

    def items(self):
        return [(name, self[name]) for name in self]

    def __len__(self):
        return len(self.items())


def _operator(record):
    return record if isinstance(record, Operator) else None


def _reader(record):
    return None if isinstance(record, Absent) else record.read


RECORDS = _Records(lambda record: record)
OPERATORS = _Records(_operator)
READ = _Records(_reader)


def check_inputs(node):
    """Refuses a node without the inputs that its operator needs, or with more than it has."""
    record = OPERATORS[node.op]
    needed, most = _arity(record.evaluate, record.subgraphs)
    if needed <= len(node.inputs) <= most and "" not in node.inputs:
        return
    given = len(node.inputs)
    if not needed <= given <= most or any(not node.inputs[i] and i not in record.optional for i in range(needed)):
        raise BadNode(f"of the {needed} inputs that it needs it has {', '.join(map(repr, node.inputs)) or 'none'}")


@functools.cache
def _arity(evaluate, subgraphs):
    """(how many inputs an operator needs, how many it may have)."""
    given = list(inspect.signature(evaluate).parameters.values())[1 + subgraphs :]
    plain = [p for p in given if p.kind is not p.VAR_POSITIONAL]
    return sum(p.default is p.empty for p in plain), len(plain) if plain == given else math.inf


def carried(node):
    """The slice of a node's inputs whose elements its results have, in other places; None: there is none."""
    moves = OPERATORS[node.op].traits.moves_elements
    plain = node.activation is None and not node.residual
    return moves(node) if moves is not None and plain else None


__all__ = ["OPERATORS", "READ", "RECORDS", "Absent", "Operator", "Rewrite", "carried", "check_inputs"]
