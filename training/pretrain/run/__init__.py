"""What the training runs of all stages share: loop, state, log and optimizer."""
