"""The console tools: a record a line, with and without schemas."""
