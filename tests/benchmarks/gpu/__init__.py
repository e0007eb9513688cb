"""Everything that only a GPU can show, measured by one command within the minutes it is given."""
