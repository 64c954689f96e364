"""The operator's command line, pbdeploy (README.md)."""
