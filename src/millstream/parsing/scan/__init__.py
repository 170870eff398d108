"""Reading a model's output piece by piece: the tools from which every format's parser is built."""
