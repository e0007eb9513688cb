"""The parts of the GPU benchmark: each yields what it has measured so far, as JSON, whenever it has measured more."""
