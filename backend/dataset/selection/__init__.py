"""Which clips of a dataset are kept: all compared with each other, the reference clip, and those held out."""
