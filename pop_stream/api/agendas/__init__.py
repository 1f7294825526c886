"""Agendas as they are read, watched, asked about and commanded."""
