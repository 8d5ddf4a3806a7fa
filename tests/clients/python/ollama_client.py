"""PyPI's ollama against Ollama's API here."""
# pip install ollama pydantic
import asyncio

import ollama
from pydantic import BaseModel
from scripted import ARGUMENTS, ASK_WEATHER, TOOL, UNICODE, main, user


def test_what_is_there(url):
    client = ollama.Client(url)
    assert [model.model for model in client.list().models] == ["scripted"]
    shown = client.show("scripted")
    assert {"embedding", "tools", "thinking"} <= set(shown.capabilities)
    assert client.ps().models[0].model == "scripted"


def test_chat(url):
    client = ollama.Client(url)
    whole = client.chat("scripted", user(f"please say: {UNICODE}"), think=True)
    assert whole.message.content == UNICODE and whole.message.thinking == "The user wants an answer."
    assert whole.done and whole.done_reason == "stop" and whole.eval_count > 0 and whole.total_duration > 0
    parts = list(client.chat("scripted", user(f"please say: {UNICODE}"), stream=True, think=False))
    assert "".join(part.message.content for part in parts) == UNICODE
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert not any(part.message.thinking for part in parts)
    short = client.chat("scripted", user("please count to 100"), options={"num_predict": 5, "num_ctx": 512}, think=False)
    assert short.done_reason == "length" and short.eval_count == 5


def test_tools(url):
    client = ollama.Client(url)
    for stream in (False, True):
        got = client.chat("scripted", user(ASK_WEATHER), tools=[TOOL], stream=stream)
        calls = [call for part in (got if stream else [got]) for call in part.message.tool_calls or []]
        assert [(call.function.name, call.function.arguments) for call in calls] == [("weather", ARGUMENTS)]
    answered = client.chat("scripted", tools=[TOOL], messages=[
        *user(ASK_WEATHER), {"role": "assistant", "content": "", "tool_calls": [call.model_dump() for call in calls]},
        {"role": "tool", "tool_name": "weather", "content": "sunny"}])
    assert answered.message.content == "The tool said: sunny"


def test_schema(url):
    class Answer(BaseModel):
        text: str
        number: int

    got = ollama.Client(url).chat("scripted", user('please say: {"text": "a", "number": 7}'), format=Answer.model_json_schema())
    assert Answer.model_validate_json(got.message.content) == Answer(text="a", number=7)


def test_generate(url):
    client = ollama.Client(url)
    assert client.generate("scripted", "please say: hello", think=False).response == "hello"
    parts = client.generate("scripted", "please say: hello", stream=True, think=False)
    assert "".join(part.response for part in parts) == "hello"
    assert client.generate("scripted", "").done_reason == "load"


def test_errors(url):
    client = ollama.Client(url)
    try:
        client.chat("scripted", user("x"), options={"temperature": "hot"})
    except ollama.ResponseError as error:
        assert error.status_code == 400 and "temperature" in error.error
    else:
        raise AssertionError("a wrong option was taken")
    try:
        client.chat("scripted", user("word " * 5000))
    except ollama.ResponseError as error:
        assert error.status_code == 400 and "context" in error.error
    else:
        raise AssertionError("a prompt beyond the context was taken")


def test_async(url):
    async def several():
        client = ollama.AsyncClient(url)
        asked = [client.chat("scripted", user(f"please say: number {i}"), think=False) for i in range(6)]
        return [one.message.content for one in await asyncio.gather(*asked)]

    assert asyncio.run(several()) == [f"number {i}" for i in range(6)]


def test_embeddings(url):
    client = ollama.Client(url)
    two = client.embed("scripted", ["one", "two"]).embeddings
    assert len(two) == 2 and abs(sum(x * x for x in two[0]) - 1) < 1e-4
    assert list(client.embeddings("scripted", "one").embedding) == list(two[0])


if __name__ == "__main__":
    main(globals(), "--embeddings", "--context", "2048")
