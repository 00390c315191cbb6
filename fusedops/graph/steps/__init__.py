"""Calls of kernels over tensors in one arena, and what makes them."""
