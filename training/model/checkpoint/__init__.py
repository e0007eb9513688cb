"""Checkpoint folders in the public Qwen3-TTS format: finding their parts, loading them strictly, writing them."""
