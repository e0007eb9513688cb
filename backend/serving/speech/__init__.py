"""A whole text as one stream of sound: split into segments, spoken, joined."""
