"""Whether this machine can do what Encore does, and what to do where it cannot."""
