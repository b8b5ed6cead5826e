"""A Kafka client for administration, where requests are rare: typed requests, routed to the broker that answers
them."""
