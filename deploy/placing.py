"""What `up` puts on the nodes: their agent's files, and PBServer itself where the layout names no interpreter."""

import base64
import hashlib
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.gateways import TLS_FILES
from controller.layout import Layout
from controller.progress import Report
from controller.recipe import ClusterError, Node
from deploy import wheel
from deploy.certificates import Keys
from deploy.machines import Machines, named
from pbserver import __version__

#: What is placed on a node that has been removed; its directory stays, so that nobody loses anything.
REMOVED = "removed"
_POLL_SECONDS = 2
_SUPERVISORD = """[unix_http_server]
file={home}/run/supervisor.sock
chmod=0700

[supervisord]
directory={home}
logfile={home}/log/supervisord.log
logfile_maxbytes=10MB
logfile_backups=1
pidfile={home}/run/supervisord.pid
childlogdir={home}/log

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface

[program:agent]
command={python} -m controller.agent --directory {home}
autorestart=true
startretries=1000
stopwaitsecs=5
stdout_logfile={home}/log/agent.log
stdout_logfile_maxbytes=10MB
stdout_logfile_backups=1
redirect_stderr=true

[include]
files={home}/conf/services.conf
"""
#: Java and MariaDB want more open files than a login has; engines are fetched below HOME. Without the firewall's rules
#: that are kept nothing starts: the operator relies on them.
_BOOT = """#!/bin/sh
# Starts this node of the cluster {name}; run by systemd at every boot, or by whatever boots this machine.
ulimit -n 65536 2>/dev/null
export HOME="${{HOME:-/root}}"
if [ -e {home}/firewall.json ]; then
    {python} -m controller.hosts.guard '{{"kept": "{home}/firewall.json"}}' || exit 1
fi
exec {python} -m supervisor.supervisord -c {home}/agent/supervisord.conf
"""
_UNIT = """[Unit]
Description=PBServer cluster {name}
After=network-online.target
Wants=network-online.target

[Service]
Type=forking
ExecStart={home}/boot
PIDFile={home}/run/supervisord.pid
KillMode=process
TimeoutStopSec=180
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True, slots=True)
class Placed:
    """What is to be on a node; `digest` names it."""

    texts: Mapping[str, str]
    digest: str


def python_of(layout: Layout, node: Node) -> Path:
    return layout.python or node.directory / "venv" / "bin" / "python"


def wanted(layout: Layout, keys: Keys) -> dict[Node, Placed]:
    """For every node. Makes keys where there are none."""
    package = hashlib.sha256(wheel.made()).hexdigest() if layout.python is None else ""
    return {node: _of_node(layout, node, keys, package) for node in layout.every_node()}


def gateway_keys(layout: Layout) -> dict[str, str]:
    """By name, what gateways speak HTTPS with; nothing where they do not. Raises ClusterError for files that cannot be
    read, or do not belong together.
    """
    if layout.tls is None:
        return {}
    files = {"cert": layout.tls.certificate.expanduser(), "key": layout.tls.key.expanduser()}
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files["cert"], files["key"], lambda: "")
        return {TLS_FILES[name]: file.read_text(encoding="ascii") for name, file in files.items()}
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else error
        raise ClusterError(
            f"tls.certificate {files['cert']} and tls.key {files['key']} cannot be used: {reason}; give PEM files that "
            "belong together, the key without a password"
        ) from error


def of_removed() -> dict[str, object]:
    """For a node whose directory stays when it is removed: a boot starts nothing there, and the keys are gone."""
    boot = "#!/bin/sh\n# This node was removed from its cluster.\n"
    return {"texts": {"boot": boot, "secret": "", "key.pem": ""}, "placed": REMOVED}


def install(machines: Machines, nodes: Sequence[Node], seconds: float, report: Report) -> None:
    """PBServer into each node's own environment. Raises ClusterError with the end of pip's log."""
    if not nodes:
        return
    report(f"{', '.join(map(named, nodes))}: installing PBServer {__version__}")
    package = {"wheel": wheel.NAME, "content": base64.b64encode(wheel.made()).decode()}
    machines.do("install", dict.fromkeys(nodes, package))
    left, deadline = list(nodes), time.monotonic() + seconds
    while left:
        said = machines.do("installed", {node: {} for node in left})
        _refuse_failed(said, time.monotonic() > deadline, seconds)
        left = [node for node in left if said[node]["code"] is None]
        time.sleep(_POLL_SECONDS * bool(left))


def _refuse_failed(said: Mapping[Node, Mapping[str, Any]], late: bool, seconds: float) -> None:
    for node, each in said.items():
        if each["code"] or (late and each["code"] is None):
            why = f"failed with {each['code']}" if each["code"] else f"has not ended within {seconds:.0f} s"
            raise ClusterError(f"{named(node)}: installing PBServer {why}\n--- log/install.log\n{each['log']}")


def _of_node(layout: Layout, node: Node, keys: Keys, package: str) -> Placed:
    certificate, key = keys.of_node(node.host)
    names = {"name": layout.name, "home": node.directory, "python": python_of(layout, node)}
    settings = {"number": node.number, "address": node.host, "port": layout.ports.agent}
    texts = {
        "agent.toml": "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()),
        "secret": keys.secret(),
        "ca.pem": keys.authority(),
        "cert.pem": certificate,
        "key.pem": key,
        "supervisord.conf": _SUPERVISORD.format(**names),
        "boot": _BOOT.format(**names),
        "unit": _UNIT.format(**names),
        "python": str(names["python"]),
        "version": __version__,
        **(gateway_keys(layout) if layout.machine_of(node) in layout.gateways else {}),
    }
    everything = json.dumps([texts, package], sort_keys=True)
    return Placed(texts, hashlib.sha256(everything.encode()).hexdigest())
