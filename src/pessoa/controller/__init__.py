"""The controller: decides what happens to topics, brokers, configurations, quotas and ACLs, and writes it down."""
