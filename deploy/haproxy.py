"""An HAProxy in front of a cluster's entry points, for apps that know one address. Pure: what its file is to say.

HTTP, not TCP: an app keeps its connections for hours, so balanced by connection a gateway that comes back would get no
calls. Any gateway takes any call, those of an open transaction too, so none has to stay with one. HAProxy tries again
elsewhere only when a gateway could not be connected to: then nothing was sent, so nothing is done twice.
"""

from collections.abc import Sequence

from pbserver.settings import DatastoreSettings, HttpSettings

_CONNECT_SECONDS = 3
_CHECK_SECONDS = 2
_MARGIN_SECONDS = 10  # a gateway says itself that a call took too long, and hears of it first that nobody calls


def configuration(
    name: str,
    entry_points: Sequence[str],
    *,
    listen: str = "127.0.0.1:10001",
    admin_port: int | None = None,
    tls: bool = False,
) -> str:
    """One section of HAProxy's file, complete in itself. `name`: of the layout. `entry_points`: HOST:PORT each.

    A gateway is asked every 2 s: GET /readyz on `admin_port`, for those whose admin port HAProxy reaches (by default it
    is on loopback); else GET / on its own port, which a worker answers, but without asking the store. `tls`: gateways
    speak HTTPS, and their certificates must be by an authority that HAProxy's machine trusts. Raises
    ValueError for what is no HOST:PORT, and for no entry points.
    """
    if not entry_points:
        raise ValueError(f"{name} has no entry points; give a node the role gateway")
    for place in (listen, *entry_points):
        _checked(place)
    idle = round(HttpSettings().idle_timeout_seconds - _MARGIN_SECONDS)  # type: ignore[call-arg]
    longest = round(DatastoreSettings().max_deadline_seconds + _MARGIN_SECONDS)  # type: ignore[call-arg]
    check = f"check inter {_CHECK_SECONDS}s fall 3 rise 2 on-marked-down shutdown-sessions"
    if tls:
        check += " ssl verify required ca-file @system-ca"
    if admin_port is not None:
        check += f" port {admin_port}"
    servers = "".join(f"    server gateway{at} {place} {check}\n" for at, place in enumerate(entry_points, 1))
    return (
        f"# The entry points of {name}. Point apps at {listen}.\n"
        f"listen pbserver-{name}\n"
        f"    bind {listen}\n"
        "    mode http\n"
        "    balance leastconn\n"
        "    option http-keep-alive\n"
        "    option redispatch 1\n"
        "    retries 2\n"
        "    retry-on conn-failure\n"
        f"    timeout connect {_CONNECT_SECONDS}s\n"
        f"    timeout client {longest}s\n"
        f"    timeout server {longest}s\n"
        f"    timeout http-keep-alive {idle}s\n"
        f"    timeout check {_CHECK_SECONDS}s\n"
        f"    option httpchk GET {'/' if admin_port is None else '/readyz'}\n"
        "    http-check expect status 200\n"
        f"{servers}"
    )


def _checked(place: str) -> None:
    host, colon, port = place.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or any(each.isspace() for each in place) or (":" in bare) != host.startswith("["):
        raise ValueError(f"{place!r} is no HOST:PORT; an IPv6 address stands in []")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{place!r} has no port from 1 to 65535")
