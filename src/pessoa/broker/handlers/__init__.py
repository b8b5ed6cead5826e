"""One file per API. The head of each says what the API does, what changed in which version, and where we differ."""
