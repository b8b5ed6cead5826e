"""The schema registry: a service that any Kafka user could have written, with its state in the topic `_schemas`.

A request, from the outside in:

    api/            one file per family of paths: HTTP in, HTTP out
    registry.py     one instance: it answers itself, or through the leader (leader_forwarding.py)
    registering.py, deleting.py, scopes.py    decisions: state and request in, records and answer out; pure
    candidates.py   the schema of a request, and which version it is; contracts.py its metadata and rules
    schemas.py      texts of three types parsed, spelt, normalised; references resolved
    compatibility/  the rules of the three types and the seven levels
    associations.py, exporters.py   resources and other registries; exporting.py copies to those
    state.py        what is registered: replayed from registry_records.py, changed by nothing else

and from the topic up:

    schemas_topic.py      `_schemas`: read from the start, written in transactions by the leader alone
    election.py           the election of the leader: a Kafka group of protocol type "sr"
    registry_service.py   all of it put together; registry_config.py the settings

Only the leader writes. It opens a transactional producer with a transactional id that all instances share, which fences
every earlier leader: an instance that has lost its leadership, even unnoticed, cannot write any more. So one instance
at a time assigns ids, and a decision never rests on a state that another instance has changed.
"""
