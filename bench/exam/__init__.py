"""The failover exam: primary A is faulty, B is healthy; what does the client get? Over real sockets, against any target."""
