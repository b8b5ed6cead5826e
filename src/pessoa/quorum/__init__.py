"""The shell of the metadata quorum: its log, its files, and the order in which its records reach everybody."""
