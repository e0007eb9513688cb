"""A run before it starts: its job, what it will take, and what stands in its way."""
