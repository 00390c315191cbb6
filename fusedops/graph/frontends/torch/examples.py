"""The example inputs of a module: their tensors, which of their sizes are open, and the same inputs in other sizes and
values."""

from inspect import Parameter, signature

import numpy as np

from .same_draws import called_alike

_IN_ORDER = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD


class Example:
    """`args` and `kwargs` are what the module is called with; `leaves` the tensors in them, in order. `wanted` has the
    names of the dimensions that the caller wants open, {(leaf, axis): name}, and `open` all that may be; the name is
    None where the caller gave none."""

    def __init__(self, torch, inputs, dynamic_shapes=None):
        self.torch, self.leaves, self.wanted = torch, [], {}
        self.casts = set()  # to types that the module computes in, for which a network has float32
        self.packs = None  # whether the module packs sequences, once that is known
        if isinstance(inputs, dict):
            _check_structure(inputs, dynamic_shapes)
            self.args, self.kwargs = (), self._converted(inputs, dynamic_shapes)
        else:
            if not isinstance(inputs, (tuple, list)):
                inputs = (inputs,)
                dynamic_shapes = dynamic_shapes if isinstance(dynamic_shapes, (tuple, list)) else (dynamic_shapes,)
            _check_structure(inputs, dynamic_shapes)
            self.args, self.kwargs = self._converted(tuple(inputs), dynamic_shapes), {}
        if not self.leaves:
            raise TypeError(_no_tensor(self.torch.utils._pytree.tree_leaves((self.args, self.kwargs))))
        self.open = {(i, 0): None for i, x in enumerate(self.leaves) if x.ndim} | self.wanted

    def add_named(self, inputs):
        """Adds keyword arguments, after those in order."""
        self.kwargs = self.kwargs | self._converted(dict(inputs), None)

    def _converted(self, value, spec):
        """A structure of arrays and tensors as one of tensors; notes these and the names in `spec`, which has the same
        structure."""
        torch = self.torch
        if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
            tensor = torch.as_tensor(value).detach().cpu()
            if tensor.is_complex():
                raise TypeError(
                    f"an example input has elements of type {tensor.dtype}, which networks do not take: "
                    "convert the module by .float() first"
                )
            tensor = tensor.clone() if any(tensor is x for x in self.leaves) else tensor
            self._note(len(self.leaves), tensor, spec)
            self.leaves.append(tensor)
            return tensor
        if isinstance(value, dict):
            return {k: self._converted(v, (spec or {}).get(k)) for k, v in value.items()}
        if isinstance(value, (tuple, list)):
            each = [self._converted(v, s) for v, s in zip(value, spec or [None] * len(value), strict=True)]
            return type(value)(*each) if hasattr(value, "_fields") else type(value)(each)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(
            f"an example input is {type(value).__name__}: pass tensors or arrays, in tuples, lists and "
            "dicts, and numbers, which stay as they are"
        )

    def _note(self, leaf, tensor, spec):
        for axis, name in _by_axis(spec, tensor.ndim).items():
            if not isinstance(axis, int) or not -tensor.ndim <= axis < tensor.ndim:
                raise ValueError(
                    f"dynamic_shapes has dimension {axis!r}, but that input has shape {tuple(tensor.shape)}"
                )
            hint = str(getattr(name, "type", "")) if type(name).__name__ == "_DimHint" else ""  # Dim.AUTO and others
            if name is not None and not isinstance(name, int) and "STATIC" not in hint:
                self.wanted[leaf, axis % tensor.ndim] = None if hint else str(getattr(name, "__name__", name))

    def __str__(self):
        """Its shapes and types, for errors."""
        return ", ".join(f"{tuple(x.shape)} of {str(x.dtype).removeprefix('torch.')}" for x in self.leaves)

    def sizes(self):
        return [tuple(x.shape) for x in self.leaves]

    def call(self, module, leaves):
        """Calls the module with other leaves in the places of the example's."""

        def call():
            given = [x.clone() for x in leaves]  # a module may change them
            return module(*self.replaced(self.args, given), **self.replaced(self.kwargs, given))

        return called_alike(self.torch, call)

    def tensors(self, module, leaves):
        return [
            y
            for y in self.torch.utils._pytree.tree_leaves(self.call(module, leaves))
            if isinstance(y, self.torch.Tensor)
        ]

    def replaced(self, value, leaves):
        """A structure with other tensors in the places of the leaves."""
        places = {id(x): y for x, y in zip(self.leaves, leaves, strict=True)}
        return self.torch.utils._pytree.tree_map(lambda v: places.get(id(v), v), value)

    def resized(self, sizes):
        """The leaves in other sizes: what is missing repeats what is there."""
        return [self._resized(x, shape) for x, shape in zip(self.leaves, sizes, strict=True)]

    def _resized(self, x, shape):
        for axis, n in enumerate(shape):
            if n != x.shape[axis]:
                x = x.index_select(axis, self.torch.arange(n) % max(x.shape[axis], 1))
        return x.contiguous()

    def varied(self, leaves, sign, times=1.5):
        """Leaves with other values: floats so many times as large, of another sign; bools, and integers for a positive
        sign, in another order, for a negative one all integers as the least, so that what is an index stays one."""

        def other(x):
            y = x.flip(tuple(range(x.ndim)))
            if x.dtype.is_floating_point:
                return y * (times * sign)
            return y if sign > 0 or x.dtype == self.torch.bool or not x.numel() else self.torch.full_like(x, x.min())

        return [other(x) for x in leaves]


def _by_axis(spec, ndim):
    """Returns the entry of `dynamic_shapes` for an input, by its dimensions."""
    if isinstance(spec, (tuple, list)) and len(spec) == ndim:
        return dict(enumerate(spec))
    if spec is not None and not isinstance(spec, dict):
        raise TypeError(
            f"dynamic_shapes has {spec!r} for an input: it takes a dict from its dimensions to names, "
            "such as {1: 'length'}"
        )
    return spec or {}


def in_order(module, inputs, spec):
    """`dynamic_shapes` in the structure of the example inputs: torch.export names the arguments of forward instead."""
    if isinstance(inputs, dict) or not isinstance(spec, dict) or not all(isinstance(name, str) for name in spec):
        return spec
    several = isinstance(inputs, (tuple, list))
    names = [p.name for p in signature(module.forward).parameters.values() if p.kind in _IN_ORDER]
    given = names[: len(inputs) if several else 1]
    for name in spec:
        if name not in names:
            raise ValueError(
                f"dynamic_shapes names {name!r}, but forward takes {', '.join(names)}: use those names, or "
                "{dimension: name} for each example input"
            )
        if name not in given and spec[name] is not None:
            raise ValueError(f"dynamic_shapes names {name!r}, but there is no such example input")
    found = tuple(spec.get(name) for name in given)
    return found if several else found[0]


def _no_tensor(leaves):
    """The error for an example without a tensor."""
    if leaves and all(isinstance(n, int) for n in leaves):
        shape = ", ".join(map(str, leaves))
        return (
            f"example_inputs has numbers alone, ({shape}): pass an example, not its shape, torch.zeros({shape}), and "
            "a module's other arguments after it in a tuple"
        )
    return "example_inputs has no tensor: pass what the module is called with, such as torch.zeros(1, 3, 224, 224)"


def _check_structure(inputs, spec):
    if spec is None:
        return
    if isinstance(inputs, dict) != isinstance(spec, dict) or not isinstance(inputs, dict) and len(spec) != len(inputs):
        raise TypeError(
            "dynamic_shapes must have the structure of the example inputs, with {dimension: name} or None "
            f"for each: got {spec!r}"
        )
    if isinstance(spec, dict) and not set(spec) <= set(inputs):
        unknown = ", ".join(sorted(set(spec) - set(inputs)))
        raise ValueError(f"dynamic_shapes names inputs that are not there: {unknown}")
