"""Other machines: how they are reached, what they say of themselves, and whether they will do."""
