"""The project's laws, tried on the model that a user has: its vocabulary, its formats, the real engine."""
