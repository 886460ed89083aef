"""Peers with behaviour instead of mocks: a network in memory, a scripted upstream, a raw client, cancellation everywhere."""
