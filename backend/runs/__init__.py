"""[5] Fine-tunes as the product sees them: planned, started, watched, steered, evaluated, kept."""
