"""[5] Fine-tunes as the product sees them: prepared, started, watched, steered, judged by sound, kept."""
