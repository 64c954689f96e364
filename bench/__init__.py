"""The measurements behind every claim about speed: `python -m bench`. README.md has the map."""
