"""``fusedops bench``: its workloads and its report. How calls are timed: ../timing.py."""
