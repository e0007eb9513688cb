"""The network and how it learns; a GPU worker needs nothing but this package."""
