"""Those for whom there are keys of the API: their names, their keys, their limits, and what they have used."""
