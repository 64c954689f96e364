"""Apache Cassandra 4 and 5, through cassandra-driver and CQL. README.md of adapters/ has the options.

store.py reads and writes, codec.py is the CQL and which rows lie together, connection.py the driver's session, nodes.py
where the cluster stands and what it says of itself, errors.py what the driver's exceptions mean.
"""
