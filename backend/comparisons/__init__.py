"""The same text by two or three voices, loudness-matched, and what listeners preferred."""
