"""PyPI's pydantic-ai: texts, tools, structured output."""
# pip install pydantic-ai-slim[openai]
import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from scripted import ARGUMENTS, ASK_WEATHER, main


class Person(BaseModel):
    name: str
    age: int


def model_of(url):
    return OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))


def run(agent, question):
    return asyncio.run(agent.run(question)).output


def test_text(url):
    assert run(Agent(model_of(url)), "please say: hello") == "hello"


def test_tool(url):
    asked = []
    agent = Agent(model_of(url))

    @agent.tool_plain
    def weather(city: str, days: int) -> str:
        """The weather in a city."""
        asked.append({"city": city, "days": days})
        return "sunny"

    assert run(agent, ASK_WEATHER) == "The tool said: sunny" and asked == [ARGUMENTS]


def test_structured(url):
    said = '{"name": "Bob", "age": 5}'
    assert run(Agent(model_of(url), output_type=NativeOutput(Person)), f"please say: {said}") == Person(name="Bob", age=5)
    assert run(Agent(model_of(url), output_type=ToolOutput(Person, name="person")), f"please call person {said}") == Person(name="Bob", age=5)


if __name__ == "__main__":
    main(globals(), "--variant", "instruct", "--context", "4096")
