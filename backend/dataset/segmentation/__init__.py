"""Where a recording is cut, and which words belong to each clip."""
