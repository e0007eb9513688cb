"""Reference outputs, and the check of a checkpoint against them."""
