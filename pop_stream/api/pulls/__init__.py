"""Workers without Kafka: they pull, hold and report."""
