"""PyPI's openai: chat, completions, responses, structured output."""
# pip install openai
import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Literal, Optional
from uuid import UUID

import openai
from pydantic import BaseModel, Field, HttpUrl
from scripted import ARGUMENTS, ASK_WEATHER, TOOL, UNICODE, main, user


def client_of(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def test_chat(url):
    client = client_of(url)
    whole = client.chat.completions.create(model="m", messages=user(f"please say: {UNICODE}"))
    assert whole.choices[0].message.content == UNICODE and whole.choices[0].finish_reason == "stop"
    text, usage = "", None
    for chunk in client.chat.completions.create(model="m", messages=user(f"please say: {UNICODE}"), stream=True,
                                                stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == UNICODE and usage.completion_tokens > 0
    two = client.chat.completions.create(model="m", messages=user("please say: a"), n=2, logprobs=True)
    assert [choice.message.content for choice in two.choices] == ["a", "a"] and two.choices[1].logprobs.content


def test_tools(url):
    with client_of(url).chat.completions.stream(model="m", messages=user(ASK_WEATHER), tools=[TOOL]) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.choices[0].message.tool_calls[0].function.name == "weather"
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}}
    for choice in ({"type": "function", "function": {"name": "weather"}}, {"type": "function", "name": "weather"}, allowed):
        forced = client_of(url).chat.completions.create(model="m", messages=user(ASK_WEATHER), tools=[TOOL], tool_choice=choice)
        assert json.loads(forced.choices[0].message.tool_calls[0].function.arguments) == ARGUMENTS


def test_structured(url):
    class Answer(BaseModel):
        kind: Literal["cat", "dog"]
        names: list[str]

    parsed = client_of(url).chat.completions.parse(model="m", messages=user('please say: {"kind": "cat", "names": ["a"]}'), response_format=Answer)
    assert parsed.choices[0].message.parsed == Answer(kind="cat", names=["a"])


def test_what_pydantic_writes(url):
    class Odd(BaseModel):
        names: set[str]
        link: HttpUrl
        place: Path
        raw: bytes
        code: str = Field(pattern="^[a-z]+$", min_length=2)
        half: float = Field(multiple_of=0.5)
        five: int = Field(multiple_of=5, gt=0)
        day: date
        id: UUID
        price: Decimal
        pair: tuple[int, str]
        kind: Optional[Literal["a", "b"]]

    said = Odd(names={"x"}, link="https://a.b/c", place=Path("/a/b"), raw=b"q", code="abc", half=1.5, five=10, day=date(2026, 11, 28),
               id=UUID("123e4567-e89b-42d3-a456-426614174000"), price=Decimal("1.5"), pair=(1, "y"), kind="a")
    shape = {"type": "json_schema", "json_schema": {"name": "odd", "schema": Odd.model_json_schema()}}
    got = client_of(url).chat.completions.create(model="m", messages=user(f"please say: {said.model_dump_json()}"), response_format=shape)
    assert Odd.model_validate_json(got.choices[0].message.content) == said


def test_completions(url):
    client = client_of(url)
    got = client.completions.create(model="m", prompt=["Once", "Once upon"], max_tokens=4, logprobs=1, echo=True)
    assert [choice.text.startswith(text) for choice, text in zip(got.choices, ["Once", "Once upon"])] == [True, True]
    assert got.choices[0].logprobs.token_logprobs[0] is None
    texts = ["", ""]
    for chunk in client.completions.create(model="m", prompt=["Once", "Once upon"], max_tokens=4, echo=True, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in got.choices]


def test_responses(url):
    client = client_of(url)
    assert client.responses.create(model="m", input=f"please say: {UNICODE}").output_text == UNICODE
    with client.responses.stream(model="m", input="please count to 5") as stream:
        assert stream.get_final_response().output_text == "1 2 3 4 5"


def test_errors(url):
    try:
        client_of(url).chat.completions.create(model="m", messages=user("word " * 5000))
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded"
    else:
        raise AssertionError("a prompt beyond the context was taken")


if __name__ == "__main__":
    main(globals(), "--context", "2048")
