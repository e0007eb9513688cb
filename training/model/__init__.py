"""Qwen3-TTS written from its parts: talker, code predictor, speaker encoder, speech tokenizer."""
