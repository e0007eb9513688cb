"""The speech engine: a running batch of takes with its queue and scheduler."""
