"""From sound to words with times: transcripts that came along, or what Whisper hears."""
