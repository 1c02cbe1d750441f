"""The long-running service: its schedule, its HTTP interface, its life."""
