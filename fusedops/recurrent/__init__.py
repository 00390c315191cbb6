"""Recurrent networks: cells, sequences and streams, and the one-shot functions for each."""

from .cells import LENT_ROWS, GRUCell, LentGRUCell, LentLSTMCell, LentRNNCell, LSTMCell, RNNCell
from .one_shot import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell
from .sequences import GRU, LSTM, RNN
from .stacks import assembled

_assembled = assembled  # by this name layers were pickled once

__all__ = [
    "GRU",
    "GRUCell",
    "LENT_ROWS",
    "LSTM",
    "LSTMCell",
    "LentGRUCell",
    "LentLSTMCell",
    "LentRNNCell",
    "RNN",
    "RNNCell",
    "gru",
    "gru_cell",
    "lstm",
    "lstm_cell",
    "rnn",
    "rnn_cell",
]
