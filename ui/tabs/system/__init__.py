"""System: what Encore runs on."""
