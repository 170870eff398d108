"""Print the table of fields into a page: ``python -m millstream.surfaces.responses docs/api.md``."""

from __future__ import annotations

import sys

from millstream.surfaces.openai_fields import main
from millstream.surfaces.responses.fields import RESPONSES_FIELDS

if __name__ == "__main__":
    main(sys.argv[1], {"responses-fields": RESPONSES_FIELDS})
