"""Database engines in a private directory: fetched from package registries, checked, accepted from elsewhere."""
