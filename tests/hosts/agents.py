"""What is proven of agents and commands, alike whatever the database is: once, on a `shop` that is up."""

import sys
from pathlib import Path

import psutil

from tests.hosts.proofs import assert_all_there, entries_of, is_whole, wait_for_more, writing
from tests.hosts.site import Site

__all__ = [
    "test_a_rolling_restart_loses_nothing",
    "test_an_agent_of_another_version_is_replaced_and_all_else_goes_on",
    "test_an_idle_agent_takes_next_to_nothing",
    "test_the_secret_is_on_no_command_line_in_no_log_and_for_nobody_else",
]

AGENT_MIB = 60
IDLE_SECONDS = 25  # more than two heartbeats


def test_the_secret_is_on_no_command_line_in_no_log_and_for_nobody_else(shop: Site) -> None:
    kept = shop.directory / "shop.pbdeploy"
    secret = (kept / "secret").read_text()
    assert kept.stat().st_mode & 0o777 == 0o700
    commands = [" ".join(psutil.Process(pid).cmdline()) for pid in shop.pids()]
    assert not any(secret in each for each in commands)
    for number in range(1, len(shop.hosts) + 1):
        for path in shop.home(number).rglob("*"):
            if path.is_file() and path.suffix in (".log", ".toml", ".conf", ".program", ".json"):
                assert secret not in path.read_text(errors="replace"), path
        assert (shop.home(number) / "agent" / "secret").stat().st_mode & 0o777 == 0o600


def test_an_idle_agent_takes_next_to_nothing(shop: Site) -> None:
    shares, memory = shop.idle_agents(IDLE_SECONDS)
    sys.stdout.write(f"agents: {[f'{share:.2%}' for share in shares]} {[f'{each:.0f} MiB' for each in memory]}\n")
    assert max(shares) < 0.01
    assert max(memory) < AGENT_MIB


def test_an_agent_of_another_version_is_replaced_and_all_else_goes_on(shop: Site) -> None:
    for name in ("version", "placed"):
        (shop.home(2) / "agent" / name).write_text("0.0.9")
    before = {each: shop.service(2, each)["pid"] for each in (shop.database_service, "pbserver")}
    agent = shop.agent_pid(2)
    address = shop.hosts[1].address
    assert shop.told("plan")[-1] == f"node2 ({address}): restart its agent"
    done = shop.pbdeploy("up", str(shop.layout))
    assert done.returncode == 0, done.stderr
    assert f"node2 ({address}): certificate, secret and agent" in done.stderr
    assert "in the place of 0.0.9" in done.stderr
    assert shop.agent_pid(2) != agent
    assert {each: shop.service(2, each)["pid"] for each in before} == before


def test_a_rolling_restart_loses_nothing(shop: Site, tmp_path: Path) -> None:
    shop.wait_for(is_whole, "the whole cluster")
    names = ("pbserver", shop.database_service)
    with writing(entries_of(shop), tmp_path) as writers:
        before = {name: shop.service(2, name)["pid"] for name in names}
        restarted = shop.told("restart", "--node", "node2")["restarted"]
        assert restarted[0] == "node2: pbserver"
        assert f"node2: {shop.database_service}" in restarted
        assert not {name: shop.service(2, name)["pid"] for name in names}.items() & before.items()
        wait_for_more(writers, "after it")
    assert_all_there(writers, entries_of(shop)[1])
