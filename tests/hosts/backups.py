"""`pbdeploy backup` and `pbdeploy restore`, and what `pbdeploy firewall` leaves on nodes; on a `shop` that is up."""

import re
import socket
import subprocess
import sys
from pathlib import Path

from pbserver.moving.dump_file import DumpFile
from tests.hosts.proofs import assert_all_there, entries_of, is_whole, wait_for_more, writing
from tests.hosts.site import ROOT, Site

__all__ = ["test_after_a_reboot_the_firewall_is_there_before_anything_starts", "test_backup_and_restore"]

_EMPTY = (
    "import sys; from pathlib import Path; from adapters.build import open_store; from pbserver.settings import load; "
    "open_store(load(Path(sys.argv[1]), {}).store).drop_tables()"
)


def test_backup_and_restore(shop: Site, tmp_path: Path) -> None:
    """What is stored before a backup is restored from it, whatever apps write meanwhile; only into an empty store."""
    shop.wait_for(is_whole, "the whole cluster")
    entries, file = entries_of(shop), tmp_path / "shop.backup"
    with writing(entries, tmp_path) as writers:
        wait_for_more(writers, "before the backup")
        counts = [len(each.acknowledged) for each in writers]
        made = shop.told("backup", "--to", str(file))
        wait_for_more(writers, "after it")
    assert made["entities"] == DumpFile(file).trailer.entities >= sum(counts)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each for each in shop.directory.rglob("*backup*") if each.is_file()] == []

    full = shop.pbdeploy("restore", str(shop.layout), "--from", str(file))
    assert (full.returncode, "Traceback" in full.stderr) == (1, False)
    assert re.search(r"node\d \(.*\): the target holds data already", full.stderr), full.stderr

    settings = shop.home(1) / "conf" / "pbserver.toml"
    command = [*shop.hosts[0].inside, sys.executable, "-c", _EMPTY, str(settings)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=60)
    restored = shop.told("restore", "--from", str(file))
    assert restored["entities"] == made["entities"]
    assert restored["restarted"] == ["node1", "node2", "node3"]
    for number, count in enumerate(counts):  # what came later need not be there
        lines = (tmp_path / f"writer{number}").read_text().splitlines(keepends=True)
        (tmp_path / f"writer{number}").write_text("".join(lines[:count]))
    assert_all_there(writers, entries[-1])


def test_after_a_reboot_the_firewall_is_there_before_anything_starts(shop: Site) -> None:
    """As far as a boot is concerned: the kernel has forgotten the rules, and then runs the node's `boot`."""
    host, database = shop.hosts[1], 3306
    inside = ["ip", "netns", "exec", host.namespace]
    boot = [*inside, str(shop.home(2) / "boot")]
    assert outside_reaches(host.address, database)
    applied = shop.pbdeploy("firewall", "apply", str(shop.layout))
    assert (applied.returncode, applied.stderr) == (0, "")
    kept = shop.home(2) / "firewall.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert not outside_reaches(host.address, database)
    try:
        subprocess.run([*inside, "nft", "flush", "ruleset"], check=True)
        assert outside_reaches(host.address, database)
        subprocess.run(boot, check=False, capture_output=True, timeout=60)  # supervisord runs already, and says so
        assert not outside_reaches(host.address, database)
        assert outside_reaches(host.address, 10001)
        assert shop.hosts[0].reaches(host.address, database)

        kept.write_text(kept.read_text().replace("tcp dport", "nonsense"))
        done = subprocess.run(boot, check=False, capture_output=True, text=True, timeout=60)
        assert (done.returncode, "Error" in done.stderr) == (1, True)
        assert "supervisor" not in done.stderr, "it was not started"
    finally:
        removed = shop.pbdeploy("firewall", "remove", str(shop.layout))
    assert removed.returncode == 0, removed.stderr
    assert not any((shop.home(number) / "firewall.json").exists() for number in (1, 2, 3))
    assert outside_reaches(host.address, database)


def outside_reaches(address: str, port: int) -> bool:
    """From this machine, which is no member."""
    try:
        socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True
