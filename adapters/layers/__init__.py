"""Layers: each is a store over a store and supplies one thing the store below lacks."""
