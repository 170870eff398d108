"""How models mark their reasoning."""
