"""Calls, one module per family."""
