"""The stages of a node's start. Each is made complete, from those before it, and can be closed from then on; they are
closed in the opposite order. `lifecycle.Broker` goes through them:

    NodeLogs         the logs of the broker (`broker.logs`)
    NodeMetrics      /metrics and /health, where there is a port for them (`broker.metrics`)
    LogDirectories   claimed, formatted if they are new, their logs opened
    NodeListeners    the ports of controllers, opened
    ClusterMember    the metadata quorum joined; the controller, if this node has that role; the way to the active one
    ControllerRole   controllers and brokers served; this controller registered
    NodeListeners    the ports of clients, opened
    BrokerRole       the broker's services; it follows the metadata: leads and follows partitions
    Membership       registered, clients served, unfenced; heartbeats
    LogMaintenance   retention, checkpoints, compaction
"""
