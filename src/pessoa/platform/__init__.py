"""The platform on one machine: which services there are, and the supervisor that runs them (`pessoa up`).

`process_plan.py` says what is to run, as `service_rows.py`; `supervisor.py` runs it, `child.py` is one process of it.
`home.py` is where data and logs are, `run_file.py` how other commands know what runs, `report.py` what the user sees.
"""
