"""The talker of the embedded checkpoint: batches, guidance and training."""
