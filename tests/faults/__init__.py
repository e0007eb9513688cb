"""Attacks on Encore as an outsider and a bad day would make them, from a seed: `python -m tests.faults`."""
