"""How a model's weights, gradients and optimizer state lie over the workers; one module each, one table."""
