"""The Dataset tab."""
