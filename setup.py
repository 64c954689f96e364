"""Package metadata and dependencies; everything that configures a tool is in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent

#: What the server cannot run without.
SERVER = [
    "protobuf>=7.35.1,<8",
    "httptools>=0.6.4,<1",
    "lmdb>=1.6,<4",
    "tornado>=6.4,<7",
    "pydantic>=2.10,<3",
    "pydantic-settings>=2.7,<3",
    "typer>=0.15,<1",
    "rich>=13.9,<16",
    "PyYAML>=6.0.2,<7",
    "structlog>=24.4",
    "prometheus-client>=0.21,<1",
]

#: The drivers of the databases; an extra each.
DRIVERS = {
    "cassandra": ["cassandra-driver>=3.30.1,<4"],
    "hbase": ["thriftpy2>=0.7.1,<1"],
    "mongodb": ["pymongo>=4.20,<5"],
    "mysql": ["PyMySQL[rsa]>=1.2,<1.3"],  # adapters/mysql uses inner parts of it; rsa: MySQL's own logins without TLS
    "zookeeper": ["kazoo>=2.11,<3"],
}

#: What a node of a cluster needs on top: its agent asks every database whether it serves.
NODE = [
    "Jinja2>=3.1.6,<4",
    "psutil>=6.1,<8",
    "supervisor>=4.3,<5",
    *(driver for drivers in DRIVERS.values() for driver in drivers),
]

#: What `pbdeploy` needs on top; clusters on this machine need what a node needs.
DEPLOY = [
    "asyncssh>=2.21,<3",
    "cryptography>=44",
    "tomlkit>=0.13,<1",
    *NODE,
]

#: What `make check` and `make test` need on top; the tests run a small bench too.
TEST = [
    "appengine-python-standard>=3.1,<4",
    "greenlet>=3.1,<4",
    "httpx>=0.28,<1",
    "hypothesis>=6.120,<7",
    "import-linter>=2.1,<3",
    "mypy>=1.14,<3",
    "pre-commit>=4,<5",
    "psutil>=6.1,<8",
    "pytest>=8.3,<10",
    "pytest-timeout>=2.3,<3",
    "pytest-xdist>=3.6,<4",
    "ruff>=0.9,<1",
    "types-protobuf>=6",
    "types-psutil>=6",
    "types-PyMySQL>=1.1",
    "types-PyYAML>=6",
]

#: What `make bench` needs on top.
BENCH = [
    "appengine-python-standard>=3.1,<4",
    "matplotlib>=3.10,<4",
    "psutil>=6.1,<8",
]

#: What `make protos` needs on top.
PROTOS = ["grpcio-tools>=1.75,<2"]

setup(
    name="pbserver",
    version="0.1.0",
    description="Any Google App Engine / Cloud Datastore application, unchanged, on any database you already run",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    python_requires=">=3.11",
    packages=find_packages(include=["pbserver*", "adapters*", "controller*", "deploy*", "protos*"]),
    package_data={
        "pbserver": ["py.typed"],
        "adapters": ["hbase/*.thrift"],
        "protos": ["*.proto", "*.pyi"],
        "controller": ["engines/locks/*", "engines/ferretdb/*", "databases/templates/*"],
        "deploy": ["layouts/*.toml"],
    },
    install_requires=SERVER,
    extras_require={
        "test": TEST + BENCH + DEPLOY,
        "bench": BENCH,
        "protos": PROTOS,
        "deploy": DEPLOY,
        "node": NODE,
        **DRIVERS,
    },
    entry_points={
        "console_scripts": [
            "pbserver=pbserver.__main__:main",
            "pbdeploy=deploy.__main__:main",
            "pbcontroller=controller.agent.__main__:main",
        ]
    },
)
