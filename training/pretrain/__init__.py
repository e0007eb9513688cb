"""Pretraining of the embedded checkpoint, from corpus to weights; not needed to run the app."""
