"""The paths of the registry, one file per family. Each has a function that returns its rows of the table of endpoints.

requests.py        what all of them ask of a request: subject, version, flags, pages; and how a write is done
schemas.py         /schemas
subjects.py        /subjects: read, register, look up
deletion.py        /subjects: delete; /contexts
compatibility.py   /compatibility
settings.py        /config, /mode
service.py         /, /v1/metadata
"""
