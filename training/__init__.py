"""The network and its training; a GPU worker needs only this package."""
