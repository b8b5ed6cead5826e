"""The paths of the registry, one file per family. Each has a function that returns its rows of the table of endpoints.

requests.py                  what all of them ask of a request: subject, version, flags, pages; and how a write is done
schema_endpoints.py          /schemas
subject_endpoints.py         /subjects: read, register, look up
deletion_endpoints.py        /subjects: delete; /contexts
compatibility_endpoints.py   /compatibility
setting_endpoints.py         /config, /mode
association_endpoints.py     /associations
exporter_endpoints.py        /exporters
root_endpoints.py            /, /v1/metadata
"""
