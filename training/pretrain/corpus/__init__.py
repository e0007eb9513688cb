"""The corpus: speakers, texts, and speech synthesized from them."""
