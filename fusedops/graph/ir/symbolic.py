"""Symbolic sizes: numbers that stay open while a network is planned, and know how they follow from the sizes of
inputs.

A plan is made once with a SymInt for each open size. Arithmetic gives other SymInts; a comparison gives a bool and
notes the condition that other sizes must meet for the plan to be theirs too. What needs a plain int gets one, by
`__index__`, and notes that the size must be that. So a plan is right for all sizes that meet its conditions, whatever
made it; operators that compute with SymInts to the end are planned once, others once a size.
"""

from operator import index, truediv

import numpy as np

from ... import _core
from .errors import BadNode, NoSymbolic


class ShapeEnv:
    """Formulas and conditions as they are noted; `guards` are conditions that functions test: (function, arguments,
    result)."""

    def __init__(self, given):
        self.formulas, self.found, self.values, self.constants = [], {}, [], {}
        self.guards = []
        self.given = [SymInt(self, self.note(_core.GIVEN, i, 0, value)) for i, value in enumerate(given)]

    def note(self, kind, a, b, value=0):
        """The number of a formula."""
        key = kind, a, b
        if key not in self.found:
            if not -1 << 63 <= value < 1 << 63:
                raise OverflowError(f"a size of {value}")
            self.found[key] = len(self.formulas)
            self.formulas.append(key)
            self.values.append(value)
        return self.found[key]

    def number(self, n):
        """The number of the formula of an int or SymInt."""
        if n.__class__ is SymInt:
            return n.number
        found = self.constants.get(n)
        if found is None:
            found = self.constants[n] = self.note(_core.CONSTANT, index(n), 0, index(n))
        return found

    def compute(self, kind, a, b, value):
        return SymInt(self, self.note(kind, self.number(a), self.number(b), value))

    def quotient(self, product, factor):
        """Divides a product by this factor, which must not be 0; None if it is not one of its factors."""
        kind, *factors = self.formulas[product.number]
        number = self.number(factor)
        if kind != _core.MULTIPLY or number not in factors or not value(factor):
            return None
        self.note(_core.UNEQUAL, number, self.number(0))
        return SymInt(self, factors[factors[0] == number])

    def holds(self, kind, opposite, a, b, truth):
        """Notes that a comparison has this result. `opposite` is the comparison, of b and a, that is true where the
        first is not."""
        a, b = self.number(a), self.number(b)
        self.note(*((kind, a, b) if truth else (opposite, b, a)))
        return truth


class Conditions:
    """What an environment has noted: the formulas, and what other sizes must meet."""

    def __init__(self, env):
        self._formulas, self._guards = _core.Formulas(env.formulas), list(env.guards)

    def values(self, given):
        """The values of all formulas for these sizes, in the environment's order; None where they do not meet the
        conditions."""
        values = self._formulas.run(given)
        met = values is not None and all(f(*concrete(a, values)) == result for f, a, result in self._guards)
        return values if met else None


_UNCHANGED = {_core.ADD: 0, _core.SUBTRACT: 0, _core.MULTIPLY: 1, _core.DIVIDE: 1}  # the int that changes nothing


def _arithmetic(kind, function, swapped=False):
    def method(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        if not isinstance(other, (int, SymInt, np.integer, np.bool_)):
            return function(other, index(self)) if swapped else function(index(self), other)
        a, b = (other, self) if swapped else (self, other)
        if not isinstance(other, SymInt):
            if kind == _core.MULTIPLY and other == 0:
                return 0
            if other == _UNCHANGED.get(kind) and (not swapped or kind in (_core.ADD, _core.MULTIPLY)):
                return self
        if kind in (_core.DIVIDE, _core.REMAINDER) and not swapped:
            whole = self.env.quotient(self, other)
            if whole is not None:
                return whole if kind == _core.DIVIDE else 0
        return self.env.compute(kind, a, b, function(value(a), value(b)))

    return method


def _comparison(kind, opposite, function, swapped=False):
    def method(self, other):
        if not isinstance(other, (int, SymInt, np.integer)):
            return NotImplemented if isinstance(other, np.ndarray) or other is None else function(index(self), other)
        if isinstance(other, SymInt) and other.number == self.number:
            return function(0, 0)
        truth = function(self.value, value(other))
        return self.env.holds(kind, opposite, *((other, self) if swapped else (self, other)), truth)

    return method


class SymInt:
    """An integer that follows from the sizes of inputs; `value` is what it is in its environment."""

    __slots__ = ("env", "number")

    def __init__(self, env, number):
        self.env, self.number = env, number

    @property
    def value(self):
        return self.env.values[self.number]

    __add__ = _arithmetic(_core.ADD, lambda a, b: a + b)
    __radd__ = _arithmetic(_core.ADD, lambda a, b: a + b, swapped=True)
    __sub__ = _arithmetic(_core.SUBTRACT, lambda a, b: a - b)
    __rsub__ = _arithmetic(_core.SUBTRACT, lambda a, b: a - b, swapped=True)
    __mul__ = _arithmetic(_core.MULTIPLY, lambda a, b: a * b)
    __rmul__ = _arithmetic(_core.MULTIPLY, lambda a, b: a * b, swapped=True)
    __floordiv__ = _arithmetic(_core.DIVIDE, lambda a, b: a // b)
    __rfloordiv__ = _arithmetic(_core.DIVIDE, lambda a, b: a // b, swapped=True)
    __mod__ = _arithmetic(_core.REMAINDER, lambda a, b: a % b)
    __rmod__ = _arithmetic(_core.REMAINDER, lambda a, b: a % b, swapped=True)
    __eq__ = _comparison(_core.EQUAL, _core.UNEQUAL, lambda a, b: a == b)
    __ne__ = _comparison(_core.UNEQUAL, _core.EQUAL, lambda a, b: a != b)
    __lt__ = _comparison(_core.LESS, _core.AT_MOST, lambda a, b: a < b)
    __le__ = _comparison(_core.AT_MOST, _core.LESS, lambda a, b: a <= b)
    __gt__ = _comparison(_core.LESS, _core.AT_MOST, lambda a, b: a > b, swapped=True)
    __ge__ = _comparison(_core.AT_MOST, _core.LESS, lambda a, b: a >= b, swapped=True)

    def __neg__(self):
        return 0 - self

    def __abs__(self):
        return -self if self < 0 else self

    def __divmod__(self, other):
        return self // other, self % other

    def __truediv__(self, other):
        """The quotient as a float, which other sizes must have too."""
        return self._ratio(self, other) if isinstance(other, (int, SymInt, np.integer)) else index(self) / other

    def __rtruediv__(self, other):
        return self._ratio(other, self) if isinstance(other, (int, np.integer)) else other / index(self)

    @staticmethod
    def _ratio(a, b):
        exact = value(a) * b == value(b) * a  # notes that a / b is this
        assert exact
        return value(a) / value(b)

    def __index__(self):
        self.env.holds(_core.EQUAL, _core.UNEQUAL, self, self.value, True)
        return self.value

    __int__ = __trunc__ = __floor__ = __ceil__ = __index__

    def __float__(self):
        return float(index(self))

    def __bool__(self):
        return bool(self != 0)

    def __hash__(self):
        return hash(index(self))

    def __repr__(self):
        return str(self.value)

    def __getattr__(self, name):
        """Tells NumPy, which looks for functions of objects by their names, that there is none."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoSymbolic(f"{name} of a size that is open")


def _no_symbolic(name):
    def method(self, *others):
        raise NoSymbolic(f"{name} of a size that is open")

    return method


for _name in ("pow", "and", "or", "xor", "lshift", "rshift", "matmul"):
    setattr(SymInt, f"__{_name}__", _no_symbolic(_name))
    setattr(SymInt, f"__r{_name}__", _no_symbolic(_name))
for _name in ("invert", "pos", "round"):
    setattr(SymInt, f"__{_name}__", _no_symbolic(_name))


def value(n):
    """The int that an int or SymInt is now; notes nothing."""
    return n.value if isinstance(n, SymInt) else int(n)


def as_dim(n):
    """n as an int, or as the SymInt that it is."""
    if n.__class__ is int or isinstance(n, SymInt):
        return n
    try:
        return index(n)
    except TypeError:
        raise BadNode(f"{n!r} is not a size") from None


def scaled(n, factor):
    """The whole part of n * factor, a product of float32."""
    whole = int(np.float32(value(n) * factor))
    if not isinstance(n, SymInt):
        return whole
    return n.env.compute(_core.SCALE, n, int(np.float32(factor).view(np.int32)), whole)


def is_multiple(size, n):
    """Whether a size is a multiple of n by what it is made of, and so at all other sizes; notes nothing of sizes where
    it is one by chance."""
    if not isinstance(size, SymInt):
        return not isinstance(n, SymInt) and size % n == 0
    return size.number == size.env.number(n) or size.env.quotient(size, n) is not None


def ratio(a, b):
    """a / b as a float: computed when sizes are given where one of them is open, and they are not equal."""
    return 1.0 if a == b else deferred(truediv, a, b)


def guard(function, *arguments):
    """function(*arguments) with plain ints; other sizes must give the same result, which the function is asked for."""
    result = function(*concrete(arguments))
    for size in _symbols(arguments)[:1]:
        size.env.guards.append((function, arguments, result))
    return result


def _symbols(x):
    """The SymInts in nested tuples, lists and arrays, and in what is computed from sizes later."""
    if isinstance(x, SymInt):
        return (x,)
    if isinstance(x, Deferred):
        return x.sizes
    if isinstance(x, np.ndarray):
        x = x.reshape(-1) if x.dtype == object else ()
    if not isinstance(x, (tuple, list, np.ndarray)):
        return ()
    return [size for item in x if item.__class__ not in _CLOSED for size in _symbols(item)]


_CLOSED = {int, float, bool, str, type(None)}


def is_symbolic(x):
    """Whether SymInts are in x."""
    return bool(_symbols(x))


def concrete(x, values=None):
    """x with ints for the SymInts in it: those of the formulas' `values`, or of the environment."""
    if x.__class__ in _CLOSED:
        return x
    if isinstance(x, SymInt):
        return x.value if values is None else int(values[x.number])
    if isinstance(x, Deferred):
        return x.now(values)
    if isinstance(x, tuple):
        plain = all(item.__class__ in _CLOSED for item in x)
        return x if plain and x.__class__ is tuple else tuple([concrete(item, values) for item in x])
    if isinstance(x, list):
        return [concrete(item, values) for item in x]
    if isinstance(x, np.ndarray) and x.dtype == object:
        return np.array([concrete(item, values) for item in x.reshape(-1)], np.int64).reshape(x.shape)
    return x


def deferred(function, *arguments):
    """function(*arguments): computed at once where no size in the arguments is open, else when sizes are given."""
    return Deferred(function, arguments) if is_symbolic(arguments) else function(*arguments)


class Deferred:
    """The result of a function of sizes, computed when they are given. If it is read before, it is that for the sizes
    of the environment, which then must not change."""

    def __init__(self, function, arguments, shape=None, dtype=None):
        self.function, self.arguments, self._shape, self._dtype = function, arguments, shape, dtype
        found = [_symbols(argument) for argument in arguments]
        sizes = {size.number: size for symbols in found for size in symbols}
        self.sizes, self._numbers = tuple(sizes.values()), tuple(sizes)
        self._open = [i for i, symbols in enumerate(found) if symbols]
        self._computed: tuple = (None, None)  # the sizes of the latest result, and that

    def now(self, values=None):
        """The result for these values of formulas; it stays while those of its sizes do."""
        key = (None,) if values is None else tuple(map(values.item, self._numbers))
        sizes, result = self._computed
        if sizes != key:
            arguments = list(self.arguments)
            for i in self._open:
                arguments[i] = concrete(arguments[i], values)
            result = self.function(*arguments)
            self._computed = key, result
        return result

    def fixed(self):
        """The result for the sizes of the environment, from now on the only ones."""
        for size in self.sizes:
            index(size)
        return self.now()

    @property
    def shape(self):
        return self.fixed().shape if self._shape is None else self._shape

    @property
    def dtype(self):
        return self.fixed().dtype if self._dtype is None else self._dtype

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.fixed(), name)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.fixed(), dtype)

    def __len__(self):
        return len(self.fixed())

    def __getitem__(self, item):
        return self.fixed()[item]

    def __iter__(self):
        return iter(self.fixed())


def typed(x, dtype):
    """An array whose SymInts are integers of this type when sizes are given; int64 is what they are anyway."""
    if not isinstance(x, np.ndarray) or x.dtype != object or dtype == np.int64:
        return x
    return Deferred(np.asarray, (x, dtype), x.shape, dtype)


def integers(numbers):
    """An array of int64, or of objects where SymInts are among the numbers."""
    return np.array([*numbers], object if is_symbolic(numbers) else np.int64)
