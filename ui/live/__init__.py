"""What goes on beside an event: live sound, followed work, stop buttons."""
