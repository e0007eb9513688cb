"""What the product does: voices, datasets, runs, serving and the store behind them."""
