"""The broker: which APIs it serves (`dispatch`), how (`handlers/`, one file per API), and its life (`assembly`)."""
