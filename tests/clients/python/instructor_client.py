"""PyPI's instructor in the modes that a chat completion serves."""
# pip install instructor
import json

import instructor
import openai
from pydantic import BaseModel, Field
from scripted import main, user


class Person(BaseModel):
    name: str
    age: int = Field(ge=0, le=150)


def test_modes(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    said = {"name": "Bob", "age": 5}
    for mode, question in ((instructor.Mode.TOOLS, f"please call Person {json.dumps(said)}"), (instructor.Mode.JSON, f"please say: {json.dumps(said)}"),
                           (instructor.Mode.JSON_SCHEMA, f"please say: {json.dumps(said)}"), (instructor.Mode.MD_JSON, f"please say: {json.dumps(said)}")):
        got = instructor.from_openai(client, mode=mode).chat.completions.create(
            model="scripted", messages=user(question), response_model=Person, max_retries=0)
        assert got.model_dump() == said, mode


if __name__ == "__main__":
    main(globals(), "--variant", "instruct", "--context", "4096")
