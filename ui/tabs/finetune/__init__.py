"""The Fine-tune tab."""
