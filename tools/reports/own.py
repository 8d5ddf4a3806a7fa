"""What caches cost a model of the user's: tables, and a summary of figures alone."""
import functools
import hashlib
import json
import pathlib
import shlex
import sys

from reports.answers import Answers, agreement, tool_calls
from reports.command import Log, file_name, run, run_shared, sides
from reports.perplexity import Row, measure_peer
from reports.tables import render

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN_CACHES = "q8_0,q4_0,tq4,tq4+64,accurate,balanced,compact,smallest"
ANSWER_CACHES = "accurate,balanced,compact,smallest,tq4"
PARTS = ["perplexity", "tools", "drafts", "agreement", "needle"]
LONG_PARTS = ["agreement", "needle"]  # not measured unless they are named
ANSWER_TOKENS = 128
VERSION = 2  # of summary.json


def summary_of(path):
    """The summary of earlier parts, or one of none."""
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        if summary["version"] == VERSION:
            return summary
    except (OSError, ValueError, LookupError, TypeError):
        pass
    return {"schema": "tq-run-quality-summary", "version": VERSION}


class OwnReport:
    def __init__(self, options):
        self.options, self.out = options, options.output
        self.program = options.build / "tq-run" if (options.build / "tq-run").exists() else "tq-run"
        self.out.mkdir(parents=True, exist_ok=True)
        self.texts = options.file
        for text in self.texts or []:
            if not text.is_file():
                sys.exit(f"quality-report: there is no file {text} to measure on")
        if not self.texts:  # the same prose for everybody; another kind of text says more about another kind of use
            self.texts = [self.out / "text.txt"]
            self.texts[0].write_text("\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))), encoding="utf-8")
        self.caches = (options.caches or OWN_CACHES).split(",")
        self.answer_caches = [cache for cache in (options.caches or ANSWER_CACHES).split(",") if cache != "f16"]
        self.head = {}  # of the summary

    def tq_run(self, command, *arguments):
        threads = ["-t", self.options.threads] if self.options.threads else []
        return [self.program, command, "-m", self.options.model, "--device", self.options.device, *threads, *arguments]

    def shared(self, command, *arguments):
        run_shared(shlex.split(self.options.launch), self.tq_run(command, *arguments))

    def perplexity(self):
        options, rows = self.options, []
        for number, text in enumerate(self.texts, 1):
            for cache, condition in [(cache, "auto") for cache in self.caches] + [("tq4", "none")] * ("tq4" in self.caches):
                log = self.out / f"{file_name(cache)}-{condition}{f'-{number}' if number > 1 else ''}.jsonl"
                self.shared("perplexity", "-f", text, "-c", options.ctx_size, "--chunks", options.chunks, *sides(cache), "--kv-condition",
                            condition, "--log", log)
                row = Row(log)
                rows.append({"text": number, "cache": cache, "kv_condition": condition, **row.figures()})
                self.head.update({key: row.head[key] for key in ("build", "model", "weight_bytes", "device", "context")}, tokens=row.tokens)
        return rows

    def needle(self):
        size, rows = self.options.ctx_size, []
        lengths = self.options.lengths or [size // 4, size // 2, size]
        for cache in ["f16", *self.answer_caches]:
            log = self.out / f"needle-{file_name(cache)}.jsonl"
            self.shared("needle", "-c", max(lengths), "--lengths", ",".join(map(str, lengths)), "--samples", self.options.samples,
                        *sides(cache), "--reference", "none", "--log", log)
            head, *texts = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
            self.head.update({key: head[key] for key in ("build", "model", "weight_bytes", "device")})
            for length in lengths:
                facts = [fact for text in texts if text["length"] == length for fact in text["found"]]
                rows.append({"cache": cache, "length": length, "facts": len(facts), "found": sum(fact["exact"] for fact in facts),
                             "log_p": sum(fact["log_p"] for fact in facts) / len(facts)})
        return rows

    @functools.cached_property
    def answers(self):
        answers = Answers(self.out, self.tq_run, self.identity(), self.texts)
        self.head = {**answers.head, **self.head}
        return answers

    def identity(self):
        path = pathlib.Path(self.options.model)
        return [path.name, path.stat().st_size if path.is_file() else 0]

    def text_digest(self, text):
        return hashlib.sha256(text.read_bytes()).hexdigest()

    def agreement(self):
        return agreement(self.answers, self.answer_caches, self.options.prompts, self.options.prompt_tokens, ANSWER_TOKENS)

    def tools(self):
        return tool_calls(self.answers, self.answer_caches, self.options.calls)

    def drafts(self):
        model, rows = self.options.draft_model, []
        for how, flags in [("ngram", [])] + [("draft", ["-md", model])] * bool(model):
            for cache in ["f16", *self.answer_caches]:
                log = Log(self.out / f"drafts-{how}-{file_name(cache)}.jsonl", schema="quality-report-drafts-2", model=self.identity(),
                          drafts=flags and pathlib.Path(model).name, text=self.text_digest(self.texts[0]))
                if "speculation" not in log.results:
                    said = run(self.tq_run("bench", "--spec", how, "--draft-always", *flags, "--spec-text", self.texts[0], "-p", 512,
                                           "-n", ANSWER_TOKENS, "-r", 1, "-o", "json", *sides(cache)))
                    log.add("speculation", json.loads(said)["speculation"])
                self.head.setdefault("model", log.results["speculation"][0]["model"])
                self.head.setdefault("device", log.results["speculation"][0]["device"])
                # The other texts are given, so that the cache changes nothing there.
                rows += [{"drafts": how, "cache": cache, **{key: text[key] for key in ("tokens", "drafted", "accepted")}}
                         for text in log.results["speculation"] if text["text"] == "own text"]
        return rows

    def peer(self):
        options, rows = self.options, []
        for number, text in enumerate(self.texts, 1):
            flags = ["-m", options.model, "-f", text, "-c", options.ctx_size, "--chunks", options.chunks]
            head = {"schema": "quality-report-peer", "model": self.identity(), "text": self.text_digest(text), "context": options.ctx_size,
                    "chunks": options.chunks}
            rows += [{"text": number, **row} for row in measure_peer(
                shlex.split(options.peer), flags + (["-t", options.threads] if options.threads else []), self.out, f"peer-{number}", head)]
        return rows

    def all(self):
        path = self.out / "summary.json"
        summary = summary_of(path)
        for part in self.options.parts + ["peer"] * bool(self.options.peer):
            figures = getattr(self, part)()
            if figures is not None:
                # What a text of the user's is, is not told even by a checksum.
                summary.update({**self.head, "text_sha256": None if self.options.file else self.text_digest(self.texts[0]), part: figures})
            path.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        report = render(summary)
        (self.out / "report.md").write_text(report, encoding="utf-8")
        print(report, f"{self.out / 'report.md'}\n{path}: figures only, to be sent to the project if you like", sep="\n")
