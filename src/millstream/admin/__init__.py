"""What a server tells its operator, and what an operator can ask of it: the contract of ``/v1/events`` and
``/v1/admin``, between the server and the programs that read it."""
