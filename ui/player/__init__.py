"""The one player of the page: a dock at the bottom, and the buttons and waveforms that feed it."""
