"""The client that is tested: orders into a topic of Kafka."""
