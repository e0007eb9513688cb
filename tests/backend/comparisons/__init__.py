"""Comparisons and votes."""
