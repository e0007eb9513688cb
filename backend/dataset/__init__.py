"""From recordings to a training set with Ray Data: cut, checked, transcribed, tokenized, each clip with its reasons."""
