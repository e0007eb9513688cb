"""Teaches the speaker encoder where unheard people lie among the voices that its talker knows."""
