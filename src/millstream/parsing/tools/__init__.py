"""Tool-call formats, one module each. What holds for all of them:

- A call is reported as soon as its name is certain, and its arguments while they come. Formats that write JSON pass the
  model's own text on (`shared.json_call` says what the exceptions are); the others are turned into JSON by one policy
  (`shared.arguments`, `shared.literals`).
- What stands behind a marker is a call whatever its name: the client answers an unknown name with an error, from which
  the model can recover. Where nothing but its shape marks a call, only declared names count, and only at the beginning.
- What cannot be a call is visible text as the model wrote it, markers included, and reading goes on at the character
  that ruled the call out. Text that breaks into a call that has started ends it, and is visible text behind it.
- An output that ends before a name is certain shows what there is as text. If it ends within a call, the arguments stay
  cut where they are, no `CallEnd` is reported, and the beginning of a marker is dropped.
- A marker inside a string of the arguments is text. Where nothing is escaped (tags), a closing tag counts only if what
  may follow it does.
- White space that touches markup is dropped, all other is kept.
- Control tokens are never shown: they are markers where the format waits for one, and vanish elsewhere. A marker
  written as plain text counts as well.
"""
