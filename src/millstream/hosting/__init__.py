"""Several models behind one provider: which are loaded, loading them, ending them, fetching others."""
