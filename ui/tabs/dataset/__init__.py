"""The Data tab."""
