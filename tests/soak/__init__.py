"""Uses Encore for an hour as several people would, and holds the memory of its processes to their tenth minute."""
