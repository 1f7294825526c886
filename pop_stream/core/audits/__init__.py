"""Judges a log of service by figures: how even, how far apart, how long."""
