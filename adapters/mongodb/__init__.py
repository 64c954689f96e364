"""MongoDB, and FerretDB behind one writer, through pymongo. README.md of adapters/ has the options.

store.py reads and writes, codec.py is the documents, connection.py the driver's client, nodes.py where the servers
stand and what they say of themselves, errors.py what the driver's exceptions mean.
"""
