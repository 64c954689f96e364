"""Whether a data file is whole: real files of LMDB, cut."""

import os
import random
import shutil
from pathlib import Path

import lmdb
import pytest

from adapters.lmdb.pages import Missing, missing_pages

PAGE = 4096
SEEDS = range(12)


def change(env: lmdb.Environment, chance: random.Random) -> None:
    with env.begin(write=True) as txn:
        for _ in range(chance.choice([1, 5, 50, 300])):
            key = b"%d" % chance.randrange(500)
            if chance.random() < chance.choice([0.2, 0.5, 0.8]):
                txn.delete(key)
            else:
                txn.put(key, chance.randbytes(chance.choice([10, 500, 3000, 20000])))


def readable(path: Path) -> bool:
    """Whether every row is there, judged by copying what LMDB itself reaches; the file is cut again afterwards."""
    raw = (path / "data.mdb").read_bytes()
    with (path / "data.mdb").open("ab") as file:
        file.write(b"\xff" * PAGE * 200)  # instead of SIGBUS: pages that LMDB refuses or rows that differ
    env = lmdb.open(str(path), readonly=True, lock=False)
    try:
        with env.begin() as txn:
            return all(b"\xff" * 100 not in value for _, value in txn.cursor())
    except lmdb.Error:
        return False
    finally:
        env.close()
        (path / "data.mdb").write_bytes(raw)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_file_is_whole_when_all_that_is_cut_off_is_free(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    env = lmdb.open(str(tmp_path / "db"), map_size=1 << 28, sync=False)
    (tmp_path / "cut").mkdir()
    cut = tmp_path / "cut" / "data.mdb"
    for number in range(60):
        change(env, chance)
        assert missing_pages(tmp_path / "db" / "data.mdb") is None  # also when it ends before its last page number
        if number % 10 == 9:
            shutil.copy(tmp_path / "db" / "data.mdb", cut)
            os.truncate(cut, cut.stat().st_size - PAGE * chance.choice([1, 2, 3, 30]))
            missing = missing_pages(cut)
            found, expected = cut.stat().st_size // PAGE, env.info()["last_pgno"] + 1
            assert missing in (None, Missing(found, expected))
            assert missing is not None or readable(cut.parent)
    env.close()


def test_the_last_page_of_a_file_that_only_grew_is_missed(tmp_path: Path) -> None:
    env = lmdb.open(str(tmp_path), sync=False)
    with env.begin(write=True) as txn:
        txn.put(b"k", b"v" * 10 * PAGE)
    pages = env.info()["last_pgno"] + 1
    env.close()
    data = tmp_path / "data.mdb"
    assert missing_pages(data) is None
    os.truncate(data, PAGE * pages - 1)
    assert missing_pages(data) == Missing(pages - 1, pages)


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"x" * 3 * PAGE])
def test_what_is_no_file_of_lmdb_is_left_to_lmdb(tmp_path: Path, content: bytes) -> None:
    data = tmp_path / "data.mdb"
    assert missing_pages(data) is None
    data.write_bytes(content)
    assert missing_pages(data) is None
