"""How a network is made of the graph that was read."""

from typing import NamedTuple

from ...layers import PRECISIONS, multiplies


class BuildOptions(NamedTuple):
    """What the passes may do, the names of those that are left out, and the precision of products."""

    fold: bool = True
    fuse: bool = True
    disabled: frozenset = frozenset()
    precision: str = PRECISIONS[0]

    @property
    def bfloat16(self):
        return multiplies(self.precision)
