"""From text and reference to the rows that the talker reads."""
