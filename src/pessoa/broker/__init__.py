"""The broker: how a request finds its API (`dispatch`), what each API does (`apis/`, one file each), and the broker's
life (`assembly`)."""
