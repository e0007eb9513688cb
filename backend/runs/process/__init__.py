"""A run while it lasts: supervisor, driver, workers, evaluation and the best checkpoint."""
