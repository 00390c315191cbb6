"""The range of each value on samples, and the scale and zero point that follow from it."""

import math
import numbers

import numpy as np

from ...quantization import between

BINS = 2048  # of a histogram
_CUTS = np.linspace(1, 0.2, 81)  # parts of a range that are tried for the lowest error
_METHODS = {"minmax": None, "percentile": 99.99, "mse": None}  # each with its parameter's default


def method_of(calibration):
    """A choice of the user as (name, parameter)."""
    name, *given = calibration if isinstance(calibration, tuple) and calibration else (calibration,)
    if not isinstance(name, str) or name not in _METHODS or len(given) > (_METHODS[name] is not None):
        raise ValueError(
            f"calibration is {calibration!r}, but must be 'minmax', 'percentile', ('percentile', p) or 'mse'"
        )
    parameter = given[0] if given else _METHODS[name]
    if parameter is not None and not (isinstance(parameter, numbers.Real) and 50 < float(parameter) <= 100):
        raise ValueError(
            f"calibration is {calibration!r}, but a percentile is above 50 and at most 100: 99.99 cuts "
            f"off one element of 10,000"
        )
    return name, parameter


def shown(method):
    """What `method_of` found, in words."""
    name, parameter = method
    return name if parameter is None else f"{name} {parameter:g}"


class Range:
    """What is seen of a value: its least and largest element, zero among them, then a histogram between these."""

    def __init__(self):
        self.least = self.most = 0.0
        self.counts = np.zeros(BINS)

    def widen(self, x):
        self.least = float(np.minimum(self.least, x.min(initial=0)))  # NaN stays
        self.most = float(np.maximum(self.most, x.max(initial=0)))

    @property
    def finite(self):
        return math.isfinite(self.least) and math.isfinite(self.most)

    def count(self, x):
        if self.least < self.most:
            self.counts += np.histogram(x, BINS, (self.least, self.most))[0]

    def quantization(self, method):
        """The Quantization to uint8 that a method of `method_of` finds."""
        name, parameter = method
        ends = self.least, self.most
        if name == "percentile":
            ends = self._percentile(parameter)
        elif name == "mse":
            ends = min(((cut * self.least, cut * self.most) for cut in _CUTS), key=self._error)
        return between(*ends)

    def _percentile(self, percent):
        """The range that holds this part of the elements, as many cut off at the one end as at the other, if the value
        has both signs."""
        edges = np.linspace(self.least, self.most, BINS + 1)
        total, both = np.cumsum(self.counts), self.least < 0 < self.most
        beyond = (1 - percent / 100) * total[-1] / (1 + both)
        low = edges[np.searchsorted(total, beyond, "right")] if self.least < 0 else 0
        high = edges[np.searchsorted(total, total[-1] - beyond) + 1] if self.most > 0 else 0
        return min(low, 0), max(high, 0)

    def _error(self, ends):
        """The sum of squared errors of the histogram in int8; what one element of a bin loses between its points is
        as for any other range, so that a bin counts by its middle."""
        edges = np.linspace(self.least, self.most, BINS + 1)
        middle, q = (edges[1:] + edges[:-1]) / 2, between(*ends)
        rounded = np.clip(np.rint(middle / q.scale), -q.zero_point, 255 - q.zero_point) * q.scale
        return float(self.counts @ (rounded - middle) ** 2)
