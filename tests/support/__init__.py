"""What tests share: generators of values, oracles, started servers."""
