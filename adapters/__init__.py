"""Databases behind one small contract of bytes (README.md)."""
