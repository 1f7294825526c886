"""How much may be emitted now, and when an agenda's turn comes."""
