"""MySQL, MariaDB, MariaDB Galera and MySQL Cluster, through PyMySQL. README.md of adapters/ has the options.

store.py reads and writes, codec.py is the SQL, connection.py the sessions and which node they go to, nodes.py what a
node says of itself, errors.py what the server's numbers mean.
"""
