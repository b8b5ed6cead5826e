"""The ksql server: statements over HTTP, kept in a command topic, and answered.

    api/ (REST, websocket) → statement_execution.py (one statement) → command_log.py (the command topic)
        → ksql_state.py (pure: what all commands together mean) → query_supervisor.py (persistent queries that run)
    push_queries.py, pull_queries.py, topic_printing.py: rows to one client

Every server with one `ksql.service.id` reads the same command topic and comes to the same state; all of them take
statements and answer queries, and one of them runs the persistent queries (`client/group_leadership.py`).
"""
