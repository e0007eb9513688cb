"""Packs runs as one checkpoint, with its description."""
