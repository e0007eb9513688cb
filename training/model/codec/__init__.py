"""Speech to codes at 12.5 frames per second, and codes back to a waveform."""
