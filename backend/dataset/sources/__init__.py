"""Recordings and transcripts as people give them: files, folders and archives."""
