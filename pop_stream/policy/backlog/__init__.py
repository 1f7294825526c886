"""What waits and what is out in one insight, in memory and as it is kept."""
