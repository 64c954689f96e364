"""The README's first app: stores a greeting, reads it back, counts them."""

import os

os.environ.setdefault("GAE_APPLICATION", "s~hello")
os.environ.setdefault("HTTP_X_APPENGINE_API_TICKET", "any")

from google.appengine.ext import ndb
from google.appengine.runtime import default_api_stub

default_api_stub.Register(default_api_stub.DefaultApiStub())
default_api_stub.DefaultApiStub.SetUseRequestSecurityTicketForThread(True)


class Greeting(ndb.Model):
    text = ndb.StringProperty()


key = Greeting(text="hello").put()
print(key, key.get(use_cache=False, use_memcache=False).text, Greeting.query().count())
