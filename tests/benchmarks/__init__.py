"""Benchmarks: commands that measure, and dated files of what they measured. Not run by the tests."""
