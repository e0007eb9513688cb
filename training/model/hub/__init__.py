"""Finding checkpoints by name, and downloading them."""
