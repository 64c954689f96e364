"""What listens: the hot port (http.py) and the operator's port (admin.py). Neither knows the Datastore."""
