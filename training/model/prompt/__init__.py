"""From text and reference to the talker's input sequence."""
