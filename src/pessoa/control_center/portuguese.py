PORTUGUESE: dict[str, str] = {}
