"""A replica of a partition, as leader or follower, and all replicas of a broker."""
