"""The operators: one record each, in files by family."""
