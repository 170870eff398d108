"""What the operator sees of the server and does to its requests: `/v1/events` and `/v1/admin`."""
