"""A checkpoint folder in the public Qwen3-TTS format: finding its parts, loading them strictly, writing one whole."""
