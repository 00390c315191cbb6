"""How a network is made of the graph that was read."""

from typing import NamedTuple


class BuildOptions(NamedTuple):
    """What the passes may do, the names of those that are left out, the precision of products, the seed of random
    numbers (None: another one for each network), and the most threads of a call (None: as many as all others)."""

    fold: bool = True
    fuse: bool = True
    disabled: frozenset = frozenset()
    precision: str = "float32"
    seed: int | None = None
    num_threads: int | None = None
