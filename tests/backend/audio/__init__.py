"""Tests of the way from files to samples and back; every file is made here, by PyAV or byte by byte."""
