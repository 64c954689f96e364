"""Service datastore_v3: messages in, messages out; all meaning is in pbserver.datastore."""
