"""An implementation of Qwen3-TTS: talker, code predictor, speaker encoder, speech tokenizer."""
