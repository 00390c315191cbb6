"""How a network is made of the graph that was read."""

from typing import NamedTuple

from ...layers import PRECISIONS, multiplies


class BuildOptions(NamedTuple):
    """What the passes may do, the names of those that are left out, the precision of products, the seed of random
    numbers (None: another one for each network), and the most threads of a call (None: as many as all others)."""

    fold: bool = True
    fuse: bool = True
    disabled: frozenset = frozenset()
    precision: str = PRECISIONS[0]
    seed: int | None = None
    num_threads: int | None = None

    @property
    def bfloat16(self):
        return multiplies(self.precision)
