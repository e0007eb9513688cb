"""Verdicts over all clips of a dataset, and which are held out."""
