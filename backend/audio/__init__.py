"""From an uploaded file to clean mono samples, and from samples to a file."""
