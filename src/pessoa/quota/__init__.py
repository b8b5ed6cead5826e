"""Client quotas: how much a user, a client id or an address may have, measured and limited. Pure: time is an argument.

    rates.py           what is measured: an average over Kafka's windows, and a bucket of tokens
    precedence.py      which of the configured limits holds for a client: eight levels
    client_quotas.py   the limits of the metadata image, and what every client has used of them
    mutations.py       what clients may have changed by the controller
    address_rates.py   how quickly an address may connect

`broker/throttling.py` mutes the connections of clients that are over their limits.
"""
