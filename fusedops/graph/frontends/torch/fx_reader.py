"""A program of torch.export as a Graph: the state and the tools that the readers of torch's operators (``aten``)
share."""

import functools
import inspect
import operator

import numpy as np

from ...inference.shape_inference import infer_from
from ...ir.dtypes import BY_NAME, to_onnx
from ...ir.graph import Graph, Node, Value, unique
from ...ir.graph_builder import GraphBuilder
from ...operators.registry import OPERATORS, READ
from ...operators.schema import plain
from ..onnx.model_file import OPSETS
from . import control_flow_ops, training
from .fx_values import FxComplex, FxSize, FxValue, OpenSize, Unsupported, as_array, is_complex, leaves, sizes
from .in_place import changed
from .live_nodes import live_nodes

_IGNORED = {
    "device",
    "layout",
    "pin_memory",
    "memory_format",
    "non_blocking",
    "generator",
    "copy",
    "requires_grad",
    "cudnn_enable",
    "cudnn_enabled",
    "sparse_grad",
}
_EXPANSIONS = {"expand", "expand_as", "repeat", "broadcast_to", "tile"}
_signature = functools.cache(inspect.signature)
LARGE = 1 << 16  # elements: more are not written out where they only repeat others


class FxReader(GraphBuilder):
    """Reads the nodes of an exported program one by one. What follows from constants alone is computed by torch; all
    else becomes nodes of ONNX."""

    def __init__(self, torch, exported, readers, names, module=None):
        """`names` has those of open dimensions, {(input, axis): name or None}; `module` has the graph, the exported
        program's by default."""
        super().__init__(Graph([], {}, [], [], [], OPSETS[-1]), False, {}, infer_from)
        self.torch, self.readers, self.exported = torch, readers, exported
        self.values, self.kept, self.symbols, self.path = {}, {}, {}, ""
        self.inputs = {}  # by placeholder
        self.opened, self.dims = [], {}  # the expressions of each input's open sizes; the name of each
        self.labels = {}  # id of a constant tensor: (its name, itself, so that no other tensor gets this id)
        self._bind(exported, names)
        self.run(exported.graph_module if module is None else module, self.values)
        self._finish(exported)
        weights = {t.dtype for _, t in self.kept.values() if t.ndim > 1 and t.dtype.is_floating_point}
        if weights == {torch.bfloat16}:
            self.graph.precision = "bfloat16"

    # ---- inputs, constants and outputs

    def _bind(self, exported, names):
        """Gives each placeholder its value: a parameter's or buffer's tensor, or an input of the graph."""
        signature = exported.graph_signature
        constant = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        for node in exported.graph.nodes:
            if node.op != "placeholder":
                continue
            if node.name in constant:
                self.values[node] = self._label(constant[node.name], _stored(exported, constant[node.name]))
                continue
            found = node.meta["val"]
            if not isinstance(found, self.torch.Tensor):
                self.values[node] = found
                continue
            self._input(node, found, names)

    def _input(self, node, found, names):
        name, i = self.fresh(node.name), len(self.graph.inputs)
        self.values[node] = FxValue(name, sizes(found.shape), found.dtype)
        self.opened.append([n.expression if isinstance(n, OpenSize) else None for n in self.values[node].shape])
        for axis, e in enumerate(self.opened[-1]):
            if e is not None:
                self.symbols.setdefault(e, (self.values[node], axis))
                usual = "batch" if axis == 0 and "batch" not in self.dims.values() else f"{name}.{axis}"
                self.dims.setdefault(e, names.get((i, axis)) or usual)
        self.inputs[node] = self.typed_value(name, self.values[node].shape, found.dtype, f"input {name!r}")
        self.graph.inputs.append(self.inputs[node])

    def typed_value(self, name, shape, dtype, what):
        """An input or output of the graph with elements of a type of torch's."""
        stored = "bfloat16" if dtype == self.torch.bfloat16 else ""
        return Value(name, self._named(shape), self.numpy_type(dtype, what), stored)

    def _named(self, shape):
        return tuple(n if isinstance(n, int) else self.dims.get(n.expression, str(n.expression)) for n in sizes(shape))

    def _label(self, name, tensor):
        tensor = tensor.detach()
        self.labels[id(tensor)] = name, tensor
        return tensor

    def _finish(self, exported):
        results = next(n for n in exported.graph.nodes if n.op == "output").args[0]
        for spec, node in zip(exported.graph_signature.output_specs, results, strict=True):
            if spec.kind.name == "USER_INPUT_MUTATION":
                continue  # the caller's array stays as it is
            if spec.kind.name != "USER_OUTPUT":
                raise ValueError(
                    f"the module writes to {spec.target!r} as it runs, but a network keeps no state from "
                    "call to call: let it take the state as an input and return it"
                )
            value = self.resolved(node)
            if is_complex(self.torch, [value]):
                raise ValueError(
                    "a result has complex numbers, which networks do not have: let the module return view_as_real"
                )
            if not isinstance(value, (FxValue, self.torch.Tensor)):
                continue  # a number of Python's
            self.graph.results.append(self.name(value))
            self.graph.outputs.append(self.typed_value("", value.shape, value.dtype, "a result"))

    def numpy_type(self, dtype, what="a number"):
        """That of elements of a type of torch's in the graph, where bfloat16 is float32."""
        if dtype == self.torch.bfloat16:
            return np.dtype(np.float32)
        name = str(dtype).removeprefix("torch.")
        try:
            return np.dtype(name)
        except TypeError:
            raise ValueError(
                f"{what} has elements of type {name}, which are not numbers of NumPy: "
                "convert the module by .float() first"
            ) from None

    def name(self, value):
        """The name of a value; a tensor of torch becomes a constant of the graph, copied once however often it is
        used."""
        if value is None:
            return ""
        if isinstance(value, str):
            return str(value)  # without what is known of it
        if isinstance(value, np.ndarray):
            return self.constant(f"{self.path}.constant".lstrip("."), value, value.dtype)
        key = value.data_ptr(), tuple(value.shape), value.stride(), value.dtype
        if value.numel() == 0 or key not in self.kept:
            label = self.labels.get(id(value), (f"{self.path}.constant".lstrip("."),))[0]
            dtype = self.numpy_type(value.dtype, f"tensor {label!r}")
            self.kept[key] = self.constant(label, self._array(value, dtype), dtype), value
        return self.kept[key][0]

    def _array(self, value, dtype):
        """A constant tensor as an array of its own memory."""
        return np.array(as_array(value), dtype, order="C")

    # ---- nodes

    def run(self, module, values):
        """Reads the nodes of a graph of torch; `values` has its placeholders and grows. The result is what its output
        node returns."""
        outer, self.values = self.values, values
        live = live_nodes(self.torch, module.graph)
        for node in module.graph.nodes:
            if node not in live:
                continue
            if node.op == "get_attr":
                found = operator.attrgetter(node.target)(module)
                values[node] = self._label(node.name, found) if isinstance(found, self.torch.Tensor) else found
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                result = self.resolved(node.args[0])
        self.values = outer
        return result

    def resolved(self, arg):
        """An argument of a node with values in the place of nodes."""
        if isinstance(arg, self.torch.fx.Node):
            return self.values[changed(arg)]
        if isinstance(arg, (list, tuple)):
            return [self.resolved(a) for a in arg]
        return arg

    def _call(self, node):
        target, self.fx_node = node.target, node
        self.path = module_path(node)
        args, known = self.resolved(node.args), {k: self.resolved(v) for k, v in node.kwargs.items()}
        if target is operator.getitem:
            self.values[node] = args[0][args[1]]
        elif not hasattr(target, "_schema"):
            self.values[node] = self._other(target, args, node.meta.get("val"))
        else:
            result = self._operator(target, args, known, node.meta.get("val"))
            self.values[node] = self.values[changed(node)] = result

    def _operator(self, target, args, known, made):
        library, name = target._schema.name.split("::")
        name = name[:-1] if target._schema.is_mutable else name
        given = dict(zip((a.name for a in target._schema.arguments), args, strict=False)) | known
        training.refuse(self.torch, target, given, self.where())
        if isinstance(made, (int, float, bool)):
            return made
        if self._is_constant(target, name, given, made):
            return self._by_torch(target, name, args, known)
        kind = name if library in ("aten", "fusedops") else target._schema.name
        kind = f"complex {kind}" if is_complex(self.torch, [*given.values(), made]) else kind
        reader = self.readers.get(kind)
        if reader is None:
            raise Unsupported(f"fusedops does not have torch's operator {target._schema.name}{self.where()}")
        self.made = made
        given = {k: v for k, v in given.items() if k not in _IGNORED}
        first = next(iter(given), None)
        try:
            taken = _signature(reader).bind(self, given.pop(first), **given)
        except TypeError as e:
            raise Unsupported(
                f"fusedops does not take torch's operator {target._schema.name} with such arguments{self.where()}: {e}"
            ) from None
        result = reader(*taken.args, **taken.kwargs)
        if isinstance(made, (list, tuple)):
            return [self.typed(r, m) for r, m in zip(result, made, strict=False)]
        return self.typed(result, made)

    def _is_constant(self, target, name, given, made):
        """Whether torch computes an operator now."""
        if any(isinstance(a, (FxValue, FxSize, FxComplex)) for a in leaves(given.values())):
            return False
        return not training.draws(self.torch, target, given) and not (name in _EXPANSIONS and made.numel() > LARGE)

    def _by_torch(self, target, name, args, known):
        """The result of an operator of constants alone, by torch; one that changes its first argument changes a
        copy."""
        if target._schema.is_mutable and isinstance(args[0], self.torch.Tensor):
            args = [args[0].clone(), *args[1:]]
        try:
            result = target(*args, **known)
        except Exception as e:  # torch raises errors of many kinds here
            raise Unsupported(f"torch cannot compute {name} of constants{self.where()}: {e}") from e
        if isinstance(result, self.torch.Tensor):
            return self._label(f"{self.path}.{name}".lstrip("."), result)
        return result

    def where(self):
        """Where in the user's module the current node comes from, in words."""
        return f" in {self.path!r}" if self.path else ""

    def typed(self, result, made):
        if isinstance(made, (self.torch.SymInt, self.torch.SymFloat)):
            if isinstance(made, self.torch.SymInt):
                self.symbols.setdefault(made.node.expr, (FxSize(result, made), None))
            return FxSize(result, made)
        if isinstance(made, self.torch.SymBool):
            return FxValue(result, (), self.torch.bool)
        if not isinstance(result, str) or made is None:
            return result
        found = FxValue(result, sizes(made.shape), made.dtype)
        for axis, n in enumerate(found.shape):
            if isinstance(n, OpenSize) and n.expression.is_Symbol:  # one that values decide is that of this result
                self.symbols.setdefault(n.expression, (found, axis))
        return found

    def _other(self, target, args, made):
        """Arithmetic of sizes, and graphs inside a node that run once."""
        if getattr(target, "__name__", "") == "wrap_with_set_grad_enabled":
            inner = args[1]
            holders = [n for n in inner.graph.nodes if n.op == "placeholder"]
            return self.run(inner, dict(zip(holders, args[2:], strict=True)))
        if getattr(target, "__name__", "") in control_flow_ops.READERS:
            return control_flow_ops.READERS[target.__name__](self, made, *args)
        if isinstance(made, (int, float, bool)):
            return made
        if isinstance(made, self.torch.SymBool):
            return None  # torch.cond says that it takes none
        op = _ARITHMETIC.get(getattr(target, "__name__", str(target)))
        if op is None:
            raise Unsupported(f"fusedops does not have torch's {getattr(target, '__name__', target)}{self.where()}")
        floats = isinstance(made, self.torch.SymFloat)
        return self.typed(op(self, *[self.number(a, np.float64 if floats else np.int64) for a in args]), made)

    def op(self, op, *inputs, count=1, **attrs):
        """Adds a node of ONNX's newest opset, or of the graph alone, and returns its result, or a list of `count`
        results. Ints and lists of them are constants."""
        read = READ.get(op, plain if op in OPERATORS else None)
        if read is None:
            raise Unsupported(f"fusedops does not have the operator {op}{self.where()}")
        name = unique(f"{self.path}.{op}" if self.path else op, self.names)
        outputs = [self.fresh(name if count == 1 else f"{name}.{i}") for i in range(count)]
        names = [self.name(np.array(v, np.int64) if isinstance(v, (int, list)) else v) for v in inputs]
        while names and not names[-1]:
            names.pop()
        try:
            read(self, Node(op, name, names, list(outputs), attrs))
        except ValueError as e:  # a form of the operator that the graph does not have
            raise Unsupported(str(e)) from e
        return outputs if count > 1 else outputs[0]

    def activation(self, x, form):
        name = unique(f"{self.path}.{form if isinstance(form, str) else form[0]}".lstrip("."), self.names)
        y = self.fresh(name)
        self.add(Node("Activation", name, [self.name(x)], [y], activation=form))
        return y

    def linear(self, x, w, b=None):
        """x w^T + b; with constant weights as one node."""
        constant = [isinstance(t, self.torch.Tensor) and t.dtype == self.torch.float32 for t in (w, b) if t is not None]
        if all(constant) and w.ndim == 2:
            name = unique(f"{self.path}.Linear".lstrip("."), self.names)
            y = self.fresh(name)
            self.add(Node("Linear", name, [self.name(v) for v in (x, w, b) if v is not None], [y]))
            return y
        y = self.op("MatMul", x, self.op("Transpose", w, perm=[1, 0]) if w.ndim == 2 else w)
        return y if b is None else self.op("Add", y, b)

    # ---- numbers, types and shapes

    def number(self, value, dtype):
        """A number as a value without axes, of a type of NumPy's."""
        if not isinstance(value, str):
            return self.name(np.array(value, dtype))
        if isinstance(value, FxSize):
            has = np.int64 if isinstance(value.number, self.torch.SymInt) else np.float64
            return value if has == np.dtype(dtype) else self.cast_to(value, dtype)
        return value

    def cast_to(self, value, dtype):
        return self.op("Cast", value, to=to_onnx(dtype))

    def cast(self, value, dtype):
        """A tensor, or number, with elements of a type of torch's."""
        if isinstance(value, (FxSize, int, float, bool)):
            return self.number(value, self.numpy_type(dtype))
        if value.dtype == dtype:
            return value
        if isinstance(value, self.torch.Tensor):
            return value.to(dtype)
        if dtype == self.torch.bfloat16:
            return FxValue(self.op("Cast", value, to=BY_NAME["bfloat16"].onnx), value.shape, dtype)
        return FxValue(self.cast_to(value, self.numpy_type(dtype, "a tensor")), value.shape, dtype)

    def scalar(self, number, like):
        """A constant number of the element type of a tensor."""
        return self.name(np.array(number, self.numpy_type(like.dtype)))

    def size(self, n):
        """A size as an int or a value without axes."""
        found = sizes([n])[0]
        return self._of_expression(found.expression) if isinstance(found, OpenSize) else found

    def _of_expression(self, e):
        if e.is_Integer:
            return int(e)
        if e in self.symbols:
            tensor, axis = self.symbols[e]
            if axis is None:
                return tensor
            value = self.op("Squeeze", self.op("Shape", tensor, start=axis, end=axis + 1), [0])
            self.symbols[e] = value, None
            return value
        compute = _ARITHMETIC.get(_OF_SYMPY.get(type(e).__name__, ""))
        if compute is None:
            raise Unsupported(f"fusedops does not have a size that is computed as {e}")
        parts = [self.number(self._of_expression(part), np.int64) for part in e.args]
        return functools.reduce(lambda a, b: compute(self, a, b), parts)

    def shape(self, shape):
        """A list of sizes as one value: a constant, or joined from its parts."""
        shape = [self.size(n) for n in shape]
        if all(isinstance(n, int) for n in shape):
            return self.name(np.array(shape, np.int64))
        parts = [np.array([n], np.int64) if isinstance(n, int) else self.op("Unsqueeze", n, [0]) for n in shape]
        return self.op("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def reshape(self, x, shape):
        """x in another shape. Where one open size follows from the others it is left to follow, and the shape is
        constant."""
        shape = sizes(shape)

        free = [i for i, n in enumerate(shape) if not isinstance(n, int)]
        others = [i for i in free if i >= x.ndim or shape[i] != x.shape[i]] or free[-1:]
        if len(others) > 1 or any(isinstance(n, int) and n == 0 for n in shape):
            return self.op("Reshape", x, self.shape(shape), allowzero=1)
        return self.op("Reshape", x, [-1 if i in others else 0 if i in free else n for i, n in enumerate(shape)])

    def static(self, shape, what):
        """SymInts as ints."""
        shape = list(sizes(shape))
        if not all(isinstance(n, int) for n in shape):
            raise Unsupported(f"fusedops does not have {what} of open size")
        return shape


_ARITHMETIC = {  # of sizes, by the names of Python's and torch's functions
    **{
        name: (lambda p, *xs, op=op: p.op(op, *xs))
        for name, op in {
            "add": "Add",
            "sub": "Sub",
            "mul": "Mul",
            "neg": "Neg",
            "mod": "Mod",
            "truediv": "Div",
            "pow": "Pow",
            "sym_max": "Max",
            "sym_min": "Min",
            "_sym_sqrt": "Sqrt",
            "sqrt": "Sqrt",
            "sym_float": "Identity",
        }.items()
    },
    "floordiv": lambda p, a, b: p.op("Div", p.op("Sub", a, p.op("Mod", a, b)), b),
}
_OF_SYMPY = {
    "Add": "add",
    "Mul": "mul",
    "FloorDiv": "floordiv",
    "CleanDiv": "floordiv",
    "Mod": "mod",
    "PythonMod": "mod",
    "Max": "sym_max",
    "Min": "sym_min",
}


def module_path(node):
    """The innermost module of the user's that a node comes from, by its path."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return stack[-1][0].removeprefix("L['self']").lstrip(".") if stack else ""


def _stored(exported, name):
    return exported.state_dict[name] if name in exported.state_dict else exported.constants[name]
