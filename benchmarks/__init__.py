"""Workloads that check the library's numbers and then time it: `python -m benchmarks list`."""
