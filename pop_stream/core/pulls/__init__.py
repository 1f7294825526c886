"""What workers over HTTP want, hold, and are to stop."""
