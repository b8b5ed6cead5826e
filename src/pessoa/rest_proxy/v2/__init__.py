"""API v2: `/topics`, `/brokers` and `/consumers`."""
