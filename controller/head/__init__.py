"""The head: the first node's agent decides what all nodes do (controller/README.md)."""
