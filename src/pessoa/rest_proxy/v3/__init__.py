"""API v3: `/v3/clusters` and everything in a cluster, as resources with links."""
