"""How work gets in: who may submit how much, and which insight it belongs to."""
