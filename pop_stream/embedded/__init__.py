"""A real Kafka and a real PostgreSQL on this machine, without a container or an installed server."""
