"""Apache HBase 2, through its Thrift2 servers and thriftpy2. README.md of adapters/ has the options.

store.py reads and writes, codec.py is the rows, cells and requests, connection.py the connections and their pool,
nodes.py where the cluster stands and what the table must be like, errors.py what failures mean, thrift2.thrift what of
HBase's Thrift2 service is used.
"""
