"""All field tables, printed into docs/api.md: ``python -m millstream.surfaces.api_page docs/api.md``."""

from __future__ import annotations

import sys

from millstream.surfaces import openai_fields, texts
from millstream.surfaces.anthropic_fields import MESSAGES_FIELDS

PRINTED = {**openai_fields.PRINTED, "messages-fields": MESSAGES_FIELDS, **texts.TABLES}
"""Where docs/api.md holds which table: between `<!-- name -->` and `<!-- end -->`."""

if __name__ == "__main__":
    openai_fields.main(sys.argv[1], PRINTED)
