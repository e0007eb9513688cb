"""Decoding: the frame loop, sampling, and batches of takes."""
