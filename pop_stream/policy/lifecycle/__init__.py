"""Which event leads where, what all events add up to, and what may be wanted when."""
