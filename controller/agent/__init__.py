"""The node agent, pbcontroller: one on every node (controller/README.md)."""
