"""PyPI's litellm by its providers for OpenAI's, Anthropic's and Ollama's APIs."""
# pip install litellm
import litellm
from scripted import ASK_WEATHER, TOOL, UNICODE, main, user

litellm.telemetry = False


def both(url, model, base):
    kept = {"model": model, "api_base": base, "api_key": "none", "max_tokens": 200, "num_retries": 0}
    whole = litellm.completion(messages=user(f"please say: {UNICODE}"), **kept)
    assert whole.choices[0].message.content == UNICODE, whole
    parts = litellm.completion(messages=user(f"please say: {UNICODE}"), stream=True, **kept)
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == UNICODE


def test_openai(url):
    both(url, "openai/scripted", f"{url}/v1")


def test_hosted_vllm(url):
    both(url, "hosted_vllm/scripted", f"{url}/v1")


def test_anthropic(url):
    both(url, "anthropic/scripted", url)


def test_ollama(url):
    both(url, "ollama_chat/scripted", url)
    whole = litellm.completion("ollama/scripted", messages=user("please say: hello"), api_base=url)
    assert whole.choices[0].message.content


def test_tools(url):
    for model, base in (("openai/scripted", f"{url}/v1"), ("anthropic/scripted", url), ("ollama_chat/scripted", url)):
        got = litellm.completion(model, messages=user(ASK_WEATHER), tools=[TOOL], api_base=base, api_key="none", max_tokens=200)
        assert got.choices[0].message.tool_calls[0].function.name == "weather", model


if __name__ == "__main__":
    main(globals(), "--variant", "instruct", "--context", "4096")
