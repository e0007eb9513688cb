"""The Tune tab."""
