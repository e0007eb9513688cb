"""The System tab."""
