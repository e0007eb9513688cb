"""Loaded checkpoints, shared by all who speak with them."""
