"""Names by which recurrent layers were pickled in version 1.0."""

from .layers import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from .layers.stacks import assembled as _assembled

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell", "_assembled"]
