"""The speech tokenizer: its codebooks, networks, losses and training."""
