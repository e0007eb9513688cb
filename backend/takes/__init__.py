"""Takes that outlast the program: what was spoken, how, and the sound, within bounds."""
