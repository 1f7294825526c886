"""pop_stream: a fair, multi-tenant work scheduler on Kafka."""

__version__ = "0.1.0"
