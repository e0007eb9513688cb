"""How the embedded checkpoint is made, from corpus to weights; nothing here is needed to run the app."""
