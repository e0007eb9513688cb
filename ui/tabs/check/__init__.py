"""Whether a recording was made by Encore: a file is dropped, and what it says of itself is told."""
