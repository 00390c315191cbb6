"""How a network is made of the graph that was read."""

from typing import NamedTuple

from ...layers import PRECISIONS, multiplies


class BuildOptions(NamedTuple):
    """What the passes may do, the names of those that are left out, the precision of products,
    and the seed of random numbers (None: another one for each network)."""

    fold: bool = True
    fuse: bool = True
    disabled: frozenset = frozenset()
    precision: str = PRECISIONS[0]
    seed: int | None = None

    @property
    def bfloat16(self):
        return multiplies(self.precision)
