"""What an operator runs now and then: `migrate`, `topics` and `doctor`."""
