"""What goes on while an event is handled: live audio, background work, stop buttons."""
