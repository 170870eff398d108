"""Settings from a file and from the environment: which there are, what they say, what a command makes of them.

The commands' own definitions are the only list of options. One precedence: command line, environment, file, default.
"""
