"""Tests; the folders mirror the packages they test."""
