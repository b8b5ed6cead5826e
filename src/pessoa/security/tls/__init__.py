"""TLS as Kafka configures it: key and trust stores, contexts, the names in certificates."""
