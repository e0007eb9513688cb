"""How weights, gradients and optimizer state are distributed over the workers; `build.py` lists the strategies."""
