"""A Kafka client for what is asked rarely and by people: typed requests, routed to the broker that answers them."""
