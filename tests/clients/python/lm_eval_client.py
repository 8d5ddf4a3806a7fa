"""PyPI's lm-eval with a task of its own: likelihoods and generation by completions, generation by chats."""
# pip install lm-eval[api]
import json
import os
import pathlib

from scripted import main

# The scripted model knows "Once upon a time there was a small server." by heart, and nothing else.
TASK = """
task: own_NAME
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/NAME.jsonl}}
test_split: test
doc_to_text: "{{begin}}"
target_delimiter: ""
"""
CHOICE = """output_type: multiple_choice
doc_to_choice: "{{choices}}"
doc_to_target: "{{right}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
WORDS = """output_type: generate_until
doc_to_target: "{{answer}}"
generation_kwargs: {until: [" server"], max_gen_toks: 40}
metric_list: [{metric: exact_match}]
"""
ROWS = {
    "choice": [{"begin": "Once upon a time", "choices": [" there was a small server.", " there was a big dog."], "right": 0},
               {"begin": "Once upon a time there was", "choices": [" a large server.", " a small server.", " none"], "right": 1},
               {"begin": "Once", "choices": [" more unto the breach", " upon a time"], "right": 1}],
    "words": [{"begin": "Once upon a time", "answer": " there was a small"}, {"begin": "Once upon", "answer": " a time there was a small"}],
    "chat": [{"begin": "please say: Grüße, 世界", "answer": "Grüße, 世界"}, {"begin": "please count to 5", "answer": "1 2 3 4 5"}],
}


def tasks():
    folder = pathlib.Path(os.getcwd()) / "tasks"
    folder.mkdir(exist_ok=True)
    for name, rows in ROWS.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, text in (("choice", CHOICE), ("words", WORDS), ("chat", WORDS)):
        (folder / f"{name}.yaml").write_text((TASK + text).replace("FOLDER", str(folder)).replace("NAME", name))
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=str(folder), include_defaults=False)


def evaluate(model, task, chat=False, **arguments):
    import lm_eval

    results = lm_eval.simple_evaluate(model=model, model_args={"model": "scripted", **arguments}, tasks=[task], task_manager=tasks(),
                                      apply_chat_template=chat, bootstrap_iters=0, log_samples=True)
    return results["results"][task], results["samples"][task]


def test_likelihood(url):
    address = f"{url}/v1/completions"
    for more in ({}, {"batch_size": 3}, {"num_concurrent": 3}, {"tokenized_requests": False}):  # its tokenizer is the server's
        scores, samples = evaluate("local-completions", "own_choice", base_url=address, **more)
        assert scores["acc,none"] == 1, (more, samples)
    first = next(sample for sample in samples if sample["doc"]["begin"] == "Once upon a time")["filtered_resps"]
    (right, is_greedy), (wrong, is_not) = first
    assert abs(float(right)) < 1e-3 and is_greedy and float(wrong) < -50 and not is_not, first


def test_generation(url):
    for more in ({}, {"tokenizer_backend": None}):
        scores, samples = evaluate("local-completions", "own_words", base_url=f"{url}/v1/completions", **more)
        assert scores["exact_match,none"] == 1, (more, samples)


def test_chat(url):
    scores, samples = evaluate("local-chat-completions", "own_chat", chat=True, base_url=f"{url}/v1/chat/completions")
    assert scores["exact_match,none"] == 1, samples


if __name__ == "__main__":
    main(globals(), "--variant", "instruct", "--context", "2048")
