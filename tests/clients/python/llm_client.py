"""PyPI's llm on the command line: chats, completions, a schema, a tool."""
# pip install llm
import json
import os
import pathlib
import subprocess
import sys

from scripted import UNICODE, main

MODELS = """
- {model_id: chat, model_name: scripted, api_base: "URL/v1", supports_schema: true, supports_tools: true}
- {model_id: text, model_name: scripted, api_base: "URL/v1", completion: true}
- {model_id: items, model_name: scripted, api_base: "URL/v1", responses: true, supports_tools: true}
"""
FUNCTIONS = '''
def weather(city: str, days: int) -> str:
    "The weather in a city"
    return f"{city} {days} sunny"
'''


def llm(url, *words):
    folder = pathlib.Path(os.getcwd()) / "llm"
    folder.mkdir(exist_ok=True)
    (folder / "extra-openai-models.yaml").write_text(MODELS.replace("URL", url))
    own = {**os.environ, "LLM_USER_PATH": str(folder), "PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "llm", "prompt", "--no-log", *words], env=own, capture_output=True,
                          stdin=subprocess.DEVNULL, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


def test_chat(url):
    for more in ([], ["--no-stream"], ["-o", "temperature", "0.5"]):
        assert llm(url, "-m", "chat", f"please say: {UNICODE}", *more) == UNICODE
    assert llm(url, "-m", "items", f"please say: {UNICODE}") == UNICODE


def test_completion(url):
    assert llm(url, "-m", "text", "Once upon", "-o", "max_tokens", "30", "-o", "logprobs", "2").startswith(" a time there was")


def test_schema(url):
    said = llm(url, "-m", "chat", 'please say: {"name": "Bob", "age": 5}', "--schema", "name, age int")
    assert json.loads(said) == {"name": "Bob", "age": 5}


def test_tool(url):
    for model in ("chat", "items"):
        said = llm(url, "-m", model, 'please call weather {"city": "Oslo", "days": 2}', "--functions", FUNCTIONS)
        assert said == "The tool said: Oslo 2 sunny", said


if __name__ == "__main__":
    main(globals(), "--variant", "instruct", "--context", "2048")
