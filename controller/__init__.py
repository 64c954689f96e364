"""The node agent and the boot planner: one recipe per database (README.md)."""
