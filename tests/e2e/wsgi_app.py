"""A guest book, written as an App Engine app. `python -m tests.e2e.wsgi_app MODE` serves it on a free port, printed.

MODE is legacy (os.environ is local to a request) or contextvars.
"""

import json
import sys
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from google.appengine.api import namespace_manager, wrap_wsgi_app
from google.appengine.datastore.datastore_query import Cursor
from google.appengine.ext import ndb

LIMIT = 7


class Greeting(ndb.Model):
    author = ndb.StringProperty()
    text = ndb.TextProperty()
    number = ndb.IntegerProperty()


class Visits(ndb.Model):
    count = ndb.IntegerProperty(default=0)


def sign(asked: dict[str, str]) -> Any:
    """Counts the visit and stores the greeting under its number, both or neither."""

    def work() -> int:
        visits = Visits.get_or_insert("visits", parent=_book())
        visits.count += 1
        visits.put()
        Greeting(parent=_book(), number=visits.count, author=asked["author"], text=asked["text"]).put()
        if asked["author"] == "vandal":
            raise ndb.Rollback
        return visits.count

    return ndb.transaction(work, retries=200)


def show(asked: dict[str, str]) -> Any:
    """A page of greetings in order of their numbers, and the text that leads to the next."""
    start = Cursor.from_websafe_string(asked["from"]) if "from" in asked else None
    found, cursor, more = Greeting.query().order(Greeting.number).fetch_page(LIMIT, start_cursor=start)
    greetings = [[greeting.number, greeting.author, greeting.text] for greeting in found]
    return {"greetings": greetings, "next": cursor.to_websafe_string().decode() if more else None}


def by_author(asked: dict[str, str]) -> Any:
    query = Greeting.query(Greeting.author == asked["author"])
    return {"count": query.count(), "texts": sorted(greeting.text for greeting in query)}


def clear(asked: dict[str, str]) -> Any:
    """Deletes all greetings at once."""
    keys = Greeting.query(ancestor=_book()).fetch(keys_only=True)
    ndb.delete_multi(keys)
    return {"deleted": len(keys), "namespace": namespace_manager.get_namespace()}


def _book() -> Any:
    return ndb.Key("Book", "main")


PAGES: dict[str, Callable[[dict[str, str]], Any]] = {
    "/sign": sign,
    "/show": show,
    "/author": by_author,
    "/clear": clear,
}


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    asked = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
    body = json.dumps(PAGES[environ["PATH_INFO"]](asked)).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


class _Server(ThreadingMixIn, WSGIServer):
    request_queue_size = 64


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        pass


def main() -> None:
    wrapped = wrap_wsgi_app(app, use_legacy_context_mode=sys.argv[1] == "legacy")
    server = make_server("127.0.0.1", 0, wrapped, server_class=_Server, handler_class=_Quiet)
    print(server.server_port, flush=True)  # noqa: T201 - how the caller learns the port
    server.serve_forever()


if __name__ == "__main__":
    main()
