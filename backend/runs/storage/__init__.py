"""What is kept of a run: its row in the database and its folder."""
