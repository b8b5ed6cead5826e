"""The doors for time and chance, and the small facts every package shares: ids, configuration tables, metrics, logs."""
