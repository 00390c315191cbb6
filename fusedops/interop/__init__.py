"""Layers and arrays of other libraries."""
