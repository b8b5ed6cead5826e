"""The platform on one machine: which services there are, and the supervisor that runs them (`pessoa up`).

`services.py` is the table, `child.py` one running process of it, `supervisor.py` the whole, `report.py` what the user
sees, `home.py` where data and logs are.
"""
