"""What pods of a proof do: say a word, write a file, read it again, answer HTTP.

primus-programs serving-helper --do=write --file=/data/x --text=mark
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import List

from workflows.programs.runtime import flags


@dataclass(frozen=True)
class Options(flags.Flags):
    """What, and with which word."""

    do: str = "say"
    """`say`, `write`, `read` or `answer`."""
    text: str = ""
    """The word."""
    file: str = ""
    """Where it is written to or read from; `say` writes it there too."""
    port: int = 0
    """On which `answer` listens."""


@flags.program("serving-helper")
def main(argv: List[str]) -> int:
    """Do it; 0, or 1 where what is read is not the word."""
    options = flags.from_argv(Options, argv)
    if options.do == "answer":
        serve(options).serve_forever()
    if options.do == "read":
        with open(options.file, encoding="utf-8") as file:
            found = file.read()
        print(f"read {found[:80]!r}, the word is {options.text!r}", flush=True)
        return 0 if found == options.text else 1
    if options.file:
        write(options.file, options.text)
    print(options.text, flush=True)
    return 0


def write(path: str, text: str) -> None:
    """The word in the file, on the disk when this returns."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def serve(options: Options) -> HTTPServer:
    """A server that answers every request with the word."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = options.text.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    return HTTPServer(("", options.port), Answers)
