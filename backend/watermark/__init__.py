"""The watermark in everything Encore speaks: put in while the sound is made, and found again in recordings."""
