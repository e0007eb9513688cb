"""What each command can be told; light, so that help and usage errors are there at once."""
