"""The Voice tab."""
