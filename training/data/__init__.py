"""From stored codes to batches the loss takes."""
