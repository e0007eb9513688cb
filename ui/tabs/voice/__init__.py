"""The Speak tab."""
