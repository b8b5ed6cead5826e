"""SASL without I/O: mechanisms, the order of requests, and the settings that name users. Clock and chance are given.

jaas.py             the text of a `sasl.jaas.config`
exchange.py         what all mechanisms have in common, on the server's side
plain.py, scram.py, oauthbearer.py  the mechanisms
server_session.py   a server's connection from its first request to the end of the exchange
client_login.py     the other side: a node that logs in to another
"""
