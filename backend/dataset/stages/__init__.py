"""The stages of a build: decode, transcribe, cut, tokenize."""
