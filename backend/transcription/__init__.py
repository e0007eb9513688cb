"""From sound to words with times: speech recognition, and comparing its results with a text."""
