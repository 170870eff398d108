"""`doctor`: what may keep a server from running well on this machine, and how to mend it."""
