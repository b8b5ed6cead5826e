"""The connectors that come with the platform, one file each; `pessoa.connect.plugins` has the table of their names."""
