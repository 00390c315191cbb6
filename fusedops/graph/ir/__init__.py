"""The graph of a network, and what is said about it."""
