"""The control centre as JSON: the table of endpoints, `/api/v1/…`, with its document at `/api/openapi.json`."""
