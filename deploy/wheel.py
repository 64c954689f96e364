"""This very PBServer as a wheel, made of the packages as they are imported here: nothing is built."""

import io
import zipfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

from controller.recipe import ClusterError
from pbserver import __version__

NAME = f"pbserver-{__version__}-py3-none-any.whl"
#: What a node needs beside the server.
EXTRA = "node"
_PACKAGES = ("pbserver", "adapters", "controller", "deploy", "protos")
_LEFT_OUT = frozenset({".pyc", ".pyo"})


def made() -> bytes:
    """The same content for the same code. Raises ClusterError where this is an installation of older code."""
    about = distribution("pbserver")
    if EXTRA not in (about.metadata.get_all("Provides-Extra") or []):
        raise ClusterError(f"PBServer was installed here before it had the extra {EXTRA!r}: pip install it again")
    info = f"pbserver-{__version__}.dist-info"
    texts = {
        f"{info}/METADATA": about.read_text("METADATA") or about.read_text("PKG-INFO") or "",
        f"{info}/entry_points.txt": about.read_text("entry_points.txt") or "",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: pbdeploy\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files = {name: text.encode() for name, text in texts.items()} | _sources()
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _sources() -> dict[str, bytes]:
    found = {}
    for package in _PACKAGES:
        spec = find_spec(package)
        assert spec is not None
        for place in spec.submodule_search_locations or ():
            for path in sorted(Path(place).rglob("*")):
                if path.is_file() and path.suffix not in _LEFT_OUT:
                    found[f"{package}/{path.relative_to(place).as_posix()}"] = path.read_bytes()
    return found
