"""What the Datastore may answer instead of a result; dispatch.py turns each into its protocol code."""


class DatastoreError(Exception):
    """Base: the message is for the application's developer."""


class BadRequest(DatastoreError):
    """The call asks for something that is not allowed or makes no sense; repeating it will not help."""


class ConcurrentTransaction(DatastoreError):
    """Another commit came between; nothing was applied; the SDK repeats the transaction."""


class NeedIndex(DatastoreError):
    """The query needs an index that does not exist, or more in-memory sorting than is allowed."""


class Timeout(DatastoreError):
    """The store did not answer in time. A write may have been applied."""


class Internal(DatastoreError):
    """Something stored is not what it should be."""


class DeadlineExceeded(DatastoreError):
    """The call's own deadline passed."""
