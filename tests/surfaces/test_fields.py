"""Honest parameters: the tables are complete, true and printed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams
from openai.types.embedding_create_params import EmbeddingCreateParams

from millstream.ir.errors import ApiError
from millstream.surfaces.anthropic_fields import MESSAGES_FIELDS
from millstream.surfaces.fields import FieldTable, check_fields, markdown_table
from millstream.surfaces.openai_chat_request import ChatBody
from millstream.surfaces.openai_completions import CompletionBody
from millstream.surfaces.openai_embeddings import EmbeddingBody
from millstream.surfaces.openai_fields import CHAT_FIELDS, COMPLETION_FIELDS, EMBEDDING_FIELDS
from millstream.surfaces.responses.fields import RESPONSES_FIELDS

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


@pytest.mark.parametrize(
    ("table", "name", "told"),
    [
        (MESSAGES_FIELDS, "seed", "It is a field of chat completions, completions and Responses, not of this request."),
        (MESSAGES_FIELDS, "stop", "It is a field of chat completions, completions and Responses, not of this request."),
        (CHAT_FIELDS, "max_output_tokens", "It is a field of Responses, not of this request."),
        (RESPONSES_FIELDS, "suffix", "It is a field of completions, not of this request."),
        (MESSAGES_FIELDS, "mirostat", ""),
        (MESSAGES_FIELDS, "sped", "Did you mean 'speed'?"),
    ],
)
def test_a_field_of_another_surface_is_no_misspelling(table: FieldTable, name: str, told: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_fields({name: msgspec.Raw(b"1")}, table)
    message = f"Unrecognized request argument supplied: {name!r}."
    assert caught.value.message == f"{message} {told}".strip()
    assert (caught.value.code, caught.value.param) == ("unknown_parameter", name)


@pytest.mark.parametrize("table", [CHAT_FIELDS, COMPLETION_FIELDS, EMBEDDING_FIELDS])
def test_the_api_page_prints_the_table(table: FieldTable) -> None:
    assert markdown_table(table) in API_PAGE.read_text(), "run: python -m millstream.surfaces.openai_fields docs/api.md"
