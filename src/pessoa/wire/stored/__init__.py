"""What Kafka keeps: the records of its internal topics and the contents of its small binary files."""
