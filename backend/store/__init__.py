"""What Encore remembers: one SQLite file in `ENCORE_HOME`, artefacts beside it by their hash."""
