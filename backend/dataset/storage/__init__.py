"""Where datasets are kept: database rows, files for training, stage cache, locks."""
