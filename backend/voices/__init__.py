"""Voices: what a recording becomes so that a model can speak with it."""
