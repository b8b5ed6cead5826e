"""Streams groups (KIP-1071): the tasks of a Kafka Streams application, assigned by the broker. Read in this order:

streams_group           members, epochs, tasks, topology: what is stored
topology_configuration  which tasks the topology has, and which internal topics it needs
sticky_assignor         which member shall have which task
task_reconciliation     how a member gets from the tasks that it has to those that it shall have
streams_heartbeat       the one request of members; streams_steps has the parts of its decision
streams_replay          the records
streams_descriptions    what StreamsGroupDescribe says
"""
