"""The verdicts on the clips of a dataset, all compared with each other; the reference clip, and those held out."""
