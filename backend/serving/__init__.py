"""From a text to speech: sentences, takes, and how they are joined."""
