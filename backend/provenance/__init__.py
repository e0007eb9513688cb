"""What a file says of how it was made: the statement, its signature, and looking both up."""
