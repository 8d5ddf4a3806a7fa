"""What a server with a compressed cache answers, beside one with an f16 cache: greedy texts, and calls of tools."""
import concurrent.futures
import hashlib
import json
import sys

from reports.command import Log, file_name, sides
from reports.server import Server
from reports.tool_schemas import judge, make_questions

TOGETHER = 8  # requests at a time: a token of an answer does not depend on the others
TOOLS_OFFERED = 10
CALL_TOKENS = 256
SEED = 1


def digest(value):
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


class Answers:
    """Asks one server after the other, each with another cache. tq_run: gives the words of a command; model: what stands for it in logs."""

    def __init__(self, folder, tq_run, model, texts):
        self.folder, self.tq_run, self.model = folder, tq_run, model
        with self.server("f16", 512) as server:
            props = server.json("/props")
            self.texts = [server.json("/tokenize", {"content": text.read_text(encoding="utf-8", errors="replace")})["tokens"] for text in texts]
        self.head = {"build": props["build_info"], "model": props["model_alias"], "device": props["device"]}
        self.has_tools = "tools" in props["chat_template"]

    def server(self, cache, context):
        flags = ["-np", TOGETHER, "-c", context, "--cache-disk", 0, "--no-webui"]
        return Server("tq-run serve", self.tq_run("serve", *sides(cache), *flags))

    def ask(self, part, cache, context, path, questions, answer_of):
        """Returns the answers to the bodies `questions` at `path`, those that its log has among them."""
        log = Log(self.folder / f"{part}-{file_name(cache)}.jsonl", schema=f"quality-report-{part}", model=self.model,
                  questions=digest(questions))
        missing = [i for i in range(len(questions)) if i not in log.results]
        if missing:
            with self.server(cache, context) as server, concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
                waiting = {pool.submit(server.json, path, questions[i]): i for i in missing}
                try:
                    for done in concurrent.futures.as_completed(waiting):
                        log.add(waiting[done], answer_of(done.result()["choices"][0]))
                        print(f"\r{part}, {cache}: {len(log.results)} of {len(questions)}", end="", file=sys.stderr, flush=True)
                except BaseException:
                    for question in waiting:
                        question.cancel()
                    raise
                print(file=sys.stderr)
        return [log.results[i] for i in range(len(questions))]


def prompts_of(texts, count, tokens):
    """`count` pieces of the texts' ids, at equal distances."""
    pieces = []
    for i, ids in enumerate(texts):
        share = count * (i + 1) // len(texts) - count * i // len(texts)
        if len(ids) < tokens + share:
            sys.exit(f"quality-report: text {i + 1} has {len(ids)} tokens, too few for {share} prompts of {tokens}: give a longer one with -f")
        pieces += [ids[start:start + tokens] for start in ((len(ids) - tokens) * n // max(share - 1, 1) for n in range(share))]
    return pieces


def agreement(answers, caches, count, prompt_tokens, tokens):
    """Figures of the answers of so many tokens to `count` prompts: how many are f16's, and how many tokens are before another one comes."""
    prompts = prompts_of(answers.texts, count, prompt_tokens)
    questions = [{"prompt": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "logprobs": 0} for ids in prompts]
    said = {cache: answers.ask("agreement", cache, prompt_tokens + tokens, "/v1/completions", questions,
                               lambda choice: choice["logprobs"]["tokens"]) for cache in ["f16", *caches]}
    rows = []
    for cache in caches:
        equal = [next((i for i, pair in enumerate(zip(a, b)) if pair[0] != pair[1]), min(len(a), len(b)))
                 for a, b in zip(said[cache], said["f16"])]
        rows.append({"cache": cache, "prompts": count, "prompt_tokens": prompt_tokens, "tokens": tokens,
                     "equal": sum(a == b for a, b in zip(said[cache], said["f16"])), "mean_equal_tokens": sum(equal) / count})
    return rows


def tool_calls(answers, caches, count):
    """Figures of the calls of `count` tools, of which ten are offered at a time. None if the model's chat template has no tools."""
    if not answers.has_tools:
        print("the model's chat template has no tools, so that no calls are measured")
        return None
    asked = make_questions(count, SEED)
    offered = [[tool for tool, _, _ in asked[i - i % TOOLS_OFFERED:][:TOOLS_OFFERED]] for i in range(count)]
    questions = [{"messages": [{"role": "user", "content": question}], "tools": tools, "temperature": 0, "max_tokens": CALL_TOKENS,
                  "chat_template_kwargs": {"enable_thinking": False}} for (_, question, _), tools in zip(asked, offered)]
    meaning = lambda message: {"content": message.get("content"),
                               "tool_calls": [{"function": call["function"]} for call in message.get("tool_calls") or []]}
    said = {cache: answers.ask("tools", cache, 8192, "/v1/chat/completions", questions, lambda choice: meaning(choice["message"]))
            for cache in ["f16", *caches]}
    rows = []
    for cache in ["f16", *caches]:
        judged = [judge(message, tool, arguments) for message, (tool, _, arguments) in zip(said[cache], asked)]
        rows.append({"cache": cache, "calls": count, "valid": sum(valid for valid, _ in judged), "as_asked": sum(good for _, good in judged),
                     "same_as_f16": sum(a == b for a, b in zip(said[cache], said["f16"]))})
    return rows
