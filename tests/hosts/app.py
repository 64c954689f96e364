"""An app of App Engine's SDK in a process of its own, which is told by API_HOST and API_PORT where its Datastore is.

`write NAME`: puts entity after entity and prints the number of each that was acknowledged. `read`: reads lines of
NAME NUMBER and prints those that are not there.
"""

import os
import sys
import time

os.environ.setdefault("GAE_APPLICATION", "s~shop")
os.environ.setdefault("HTTP_X_APPENGINE_API_TICKET", "any")

from google.appengine.api import datastore_errors
from google.appengine.ext import ndb
from google.appengine.runtime import apiproxy_errors, default_api_stub

PAUSE_SECONDS = 0.5  # nodes that boot or move data meanwhile need the cores too
BATCH = 100
SECONDS = 10  # for a call


class Kept(ndb.Model):
    number = ndb.IntegerProperty()


def write(name: str) -> None:
    number = 0
    while True:
        number += 1
        try:
            Kept(id=f"{name}-{number}", number=number).put(deadline=SECONDS, use_cache=False, use_memcache=False)
        except (datastore_errors.Error, apiproxy_errors.Error):
            time.sleep(1)
        else:
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            time.sleep(PAUSE_SECONDS)


def read() -> None:
    wanted = [tuple(line.split()) for line in sys.stdin]
    for first in range(0, len(wanted), BATCH):
        batch = wanted[first : first + BATCH]
        keys = [ndb.Key(Kept, f"{name}-{number}") for name, number in batch]
        found = ndb.get_multi(keys, use_cache=False, use_memcache=False)
        for (name, number), each in zip(batch, found, strict=True):
            if each is None or each.number != int(number):
                sys.stdout.write(f"{name} {number}\n")


if __name__ == "__main__":
    default_api_stub.Register(default_api_stub.DefaultApiStub())
    default_api_stub.DefaultApiStub.SetUseRequestSecurityTicketForThread(True)
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        read()
