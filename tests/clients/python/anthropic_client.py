"""PyPI's anthropic: messages, streams, tools, thinking."""
# pip install anthropic
import anthropic
from scripted import ARGUMENTS, ASK_WEATHER, UNICODE, WEATHER, main, user

TOOLS = [{"name": "weather", "description": "The weather in a city", "input_schema": WEATHER}]


def client_of(url):
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def test_messages(url):
    client = client_of(url)
    whole = client.messages.create(model="m", max_tokens=200, messages=user(f"please say: {UNICODE}"))
    assert [(block.type, block.text) for block in whole.content] == [("text", UNICODE)] and whole.stop_reason == "end_turn"
    with client.messages.stream(model="m", max_tokens=200, messages=user(f"please say: {UNICODE}")) as stream:
        assert "".join(stream.text_stream) == UNICODE
    counted = client.messages.count_tokens(model="m", messages=user(f"please say: {UNICODE}"))
    assert counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens


def test_thinking(url):
    whole = client_of(url).messages.create(model="m", max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024}, messages=user("Hi"))
    assert [block.type for block in whole.content] == ["thinking", "text"]


def test_tools(url):
    client = client_of(url)
    called = client.messages.create(model="m", max_tokens=200, messages=user(ASK_WEATHER), tools=TOOLS)
    assert called.stop_reason == "tool_use" and called.content[-1].input == ARGUMENTS
    result = {"type": "tool_result", "tool_use_id": called.content[-1].id, "content": "sunny"}
    answered = client.messages.create(model="m", max_tokens=200, tools=TOOLS, messages=[
        *user(ASK_WEATHER), {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}])
    assert answered.content[-1].text == "The tool said: sunny"
    forced = client.messages.create(model="m", max_tokens=200, messages=user(ASK_WEATHER), tools=TOOLS, tool_choice={"type": "tool", "name": "weather"})
    assert [block.type for block in forced.content] == ["tool_use"]


def test_errors(url):
    try:
        client_of(url).messages.create(model="m", max_tokens=9, messages=user("word " * 5000))
    except anthropic.BadRequestError as error:
        assert "prompt is too long" in error.message
    else:
        raise AssertionError("a prompt beyond the context was taken")


if __name__ == "__main__":
    main(globals(), "--context", "2048")
