"""Honest parameters: the tables are complete, true and printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams
from openai.types.embedding_create_params import EmbeddingCreateParams

from millstream.surfaces.fields import FieldTable, markdown_table
from millstream.surfaces.openai_chat_request import ChatBody
from millstream.surfaces.openai_completions import CompletionBody
from millstream.surfaces.openai_embeddings import EmbeddingBody
from millstream.surfaces.openai_fields import CHAT_FIELDS, COMPLETION_FIELDS, EMBEDDING_FIELDS

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.mark.parametrize(
    ("table", "params"),
    [(CHAT_FIELDS, ChatParams), (COMPLETION_FIELDS, CompletionParams), (EMBEDDING_FIELDS, EmbeddingCreateParams)],
)
def test_every_field_of_openai_is_decided(table: FieldTable, params: type) -> None:
    assert set(params.__annotations__) - set(table) == set()


@pytest.mark.parametrize(
    ("table", "body"), [(CHAT_FIELDS, ChatBody), (COMPLETION_FIELDS, CompletionBody), (EMBEDDING_FIELDS, EmbeddingBody)]
)
def test_what_is_said_to_be_honoured_is_read(table: FieldTable, body: type) -> None:
    honoured = {name for name, field in table.items() if field.status == "honoured"}
    assert honoured == set(body.__struct_fields__)


@pytest.mark.parametrize("table", [CHAT_FIELDS, COMPLETION_FIELDS, EMBEDDING_FIELDS])
def test_the_api_page_prints_the_table(table: FieldTable) -> None:
    assert markdown_table(table) in API_PAGE.read_text(), "run: python -m millstream.surfaces.openai_fields docs/api.md"
