"""`bench http`: what a client sees of any server that speaks OpenAI chat, one alone or several in turns."""
