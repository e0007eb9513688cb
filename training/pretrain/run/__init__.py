"""Shared by the training runs of all stages: loop, state, log and optimizer."""
