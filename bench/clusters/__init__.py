"""PBServer beside the native drivers of real databases: `python -m bench.clusters`. bench/README.md says how."""
