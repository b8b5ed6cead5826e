"""What a statement means: names, types, keys, windows and joins are checked, and a query becomes a logical plan."""
