"""A real Kafka and a real PostgreSQL on this machine, without containers or installation."""
