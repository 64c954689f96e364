"""The server: Datastore calls in, one of many databases below (README.md)."""

__version__ = "0.1.0"
