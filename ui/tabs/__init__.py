"""One file for each tab: its components, and which handler each event calls."""
