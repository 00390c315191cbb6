"""Benchmarks: ``pytest bench`` measures, ``python -m bench.report`` measures and draws; run from the top of a
checkout."""
