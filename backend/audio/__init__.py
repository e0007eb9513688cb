"""From a file somebody handed in to clean mono samples, and from samples to a file."""
