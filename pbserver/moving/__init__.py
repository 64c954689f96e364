"""Moving house: everything a store holds, to another store or into a file and back.

records.py what is moved, in its order; reading.py out of a store; arriving.py into a store, going on where it stood;
dump_file.py out of and into a file; comparing.py whether two are the same; admin.py what the commands do.

Stores differ in how they keep heads and index rows, so entities are moved and not rows: they keep their bytes, and get
versions, heads and index rows of the target's own. A source may be in use. It is read a page at a time, each page of
one state where the store has snapshots: what is put or deleted meanwhile may or may not be moved.
"""
