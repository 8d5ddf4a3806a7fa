"""PyPI's aider edits a file by one message, streamed and not."""
# pip install aider-chat
import os
import pathlib
import subprocess
import sys
import tempfile

from scripted import main


def test_edit(url):
    answer = "hello.py\n```\nprint('edited')\n```"  # its whole format: the file's name, and all of its text
    own = {**os.environ, "OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "none"}
    for more in ([], ["--no-stream"]):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "hello.py"
            file.write_text("print('hello')\n")
            own["HOME"] = folder
            done = subprocess.run([sys.executable, "-W", "ignore", "-m", "aider", "--model", "openai/scripted", "--edit-format", "whole", "--no-git",
                                   "--yes-always", "--map-tokens", "0", "--no-show-model-warnings", "--no-check-update", "--analytics-disable",
                                   "--no-detect-urls", "--no-suggest-shell-commands", "--message", f"please say: {answer}", "hello.py", *more],
                                  env=own, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=240)
            assert file.read_text() == "print('edited')\n", (done.stdout, done.stderr)


if __name__ == "__main__":
    main(globals(), "--variant", "instruct", "--context", "16384")
