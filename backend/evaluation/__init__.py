"""Evaluation by ear: a checkpoint speaks, and what is heard is measured."""
