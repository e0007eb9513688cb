"""Runs put together as one checkpoint, with its description."""
