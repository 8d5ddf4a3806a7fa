"""PyPI's langchain-openai: chats, tools, structured output."""
# pip install langchain-openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field
from scripted import ARGUMENTS, ASK_WEATHER, TOOL, UNICODE, main


def model_of(url):
    return ChatOpenAI(base_url=f"{url}/v1", api_key="none", model="scripted", max_retries=0)


def test_chat(url):
    assert model_of(url).invoke(f"please say: {UNICODE}").content == UNICODE
    assert "".join(part.content for part in model_of(url).stream(f"please say: {UNICODE}")) == UNICODE
    assert [one.content for one in model_of(url).batch(["please say: a", "please say: b"])] == ["a", "b"]


def test_tools(url):
    model = model_of(url).bind_tools([TOOL])
    asked = HumanMessage(ASK_WEATHER)
    called = model.invoke([asked])
    assert called.tool_calls[0]["args"] == ARGUMENTS
    assert model.invoke([asked, called, ToolMessage("sunny", tool_call_id=called.tool_calls[0]["id"])]).content == "The tool said: sunny"


def test_structured(url):
    class Answer(BaseModel):
        """An answer."""

        name: str = Field(pattern="^[a-z]+$", min_length=1)
        age: int | None = None

    for method in ("json_schema", "json_mode"):
        got = model_of(url).with_structured_output(Answer, method=method).invoke('please say: {"name": "bob", "age": 7}')
        assert got == Answer(name="bob", age=7), method
    called = model_of(url).with_structured_output(Answer, method="function_calling").invoke('please call Answer {"name": "bob", "age": 7}')
    assert called == Answer(name="bob", age=7)


if __name__ == "__main__":
    main(globals(), "--variant", "instruct", "--context", "2048")
