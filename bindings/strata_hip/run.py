"""`strata-hip run`: one prompt, or a conversation on a terminal."""
import argparse
import secrets
import sys
from typing import Any, Dict, Iterator, List

from .errors import StrataError
from .llama import Llama
from .llama_values import CACHE_TYPES


def run(options: argparse.Namespace) -> None:
    """Loads the model and prints what it writes, as it writes it."""
    prompt = read_prompt(options)
    llm = load(options)
    has_template = "tokenizer.chat_template" in llm.metadata
    if options.conversation is None:
        options.conversation = has_template
    elif options.conversation and not has_template:
        raise StrataError(f"{options.model} has no chat template: it can only continue text (-no-cnv)")
    sampling = dict(max_tokens=None if options.predict < 0 else options.predict, temperature=options.temp, top_k=options.top_k,
                    top_p=options.top_p, min_p=options.min_p, repeat_penalty=options.repeat_penalty)
    try:
        if options.conversation:
            converse(llm, prompt, options, sampling)
        else:
            continue_text(llm, prompt, options, sampling)
    except ValueError as error:  # llama_cpp's for a prompt that does not fit
        raise StrataError(str(error)) from None


def read_prompt(options: argparse.Namespace) -> str:
    """-p, -f or stdin."""
    if options.prompt is not None:
        return options.prompt
    try:
        if options.file:
            with open(options.file, encoding="utf-8") as file:
                return file.read()
        if sys.stdin.isatty():
            return input("> ")
        text = sys.stdin.read()
        if not text:
            raise StrataError("no prompt was given: neither -p nor -f, and stdin is empty")
        return text
    except EOFError:
        raise StrataError("no prompt was given") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StrataError(f"the prompt cannot be read: {error}") from None


def load(options: argparse.Namespace) -> Llama:
    """The model with the context that the options describe."""
    for name in (options.cache_type_k, options.cache_type_v):
        if name not in CACHE_TYPES:
            raise StrataError(f"cache type {name!r} is none of {', '.join(CACHE_TYPES)}")
    for name in ("batch_size", "ubatch_size", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise StrataError(f"--{name.replace('_', '-')} {value}: at least 1")
    if not -1 <= options.seed < 1 << 32:
        raise StrataError(f"--seed {options.seed}: a number below 2^32, or -1 for any")
    if options.ctx_size < 0:
        raise StrataError(f"a context of {options.ctx_size} tokens is none; 0 is the model's own")
    # llama.cpp rounds a context up to this; llama_cpp goes by what it was given, and by what it got
    n_ctx = (options.ctx_size + 255) // 256 * 256
    return Llama(
        options.model, backend=options.backend, device=options.runtime, n_gpu_layers=options.gpu_layers, n_ctx=n_ctx,
        n_batch=options.batch_size, n_ubatch=options.ubatch_size, n_threads=options.threads, n_threads_batch=options.threads,
        flash_attn=options.flash_attn != "off", type_k=CACHE_TYPES[options.cache_type_k],
        type_v=CACHE_TYPES[options.cache_type_v], seed=secrets.randbits(32) if options.seed < 0 else options.seed, verbose=options.verbose)


def continue_text(llm: Llama, prompt: str, options: argparse.Namespace, sampling: Dict[str, Any]) -> None:
    """Prints the prompt and what follows it."""
    if not llm.tokenize(prompt.encode("utf-8"), special=True):
        raise StrataError("the prompt is empty, and this model needs a token to begin with")
    if not options.no_display_prompt:
        print(prompt, end="", flush=True)
    if sampling["max_tokens"] == 0:  # llama_cpp takes it for no limit
        print()
        return
    chunks: Any = llm(prompt, stream=True, **sampling)
    show(chunk["choices"][0]["text"] for chunk in chunks)


def converse(llm: Llama, prompt: str, options: argparse.Namespace, sampling: Dict[str, Any]) -> None:
    """Answers `prompt`; on a terminal, what the user says after it too."""
    if sampling["max_tokens"] == 0:  # llama_cpp takes it for no limit
        return
    messages: List[Any] = []
    if options.system_prompt:
        messages.append({"role": "system", "content": options.system_prompt})
    while True:
        messages.append({"role": "user", "content": prompt})
        chunks: Any = llm.create_chat_completion(messages=messages, stream=True, **sampling)
        answer = show(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        messages.append({"role": "assistant", "content": answer})
        if options.single_turn or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return
        try:
            prompt = input("\n> ")
        except EOFError:
            prompt = ""
        if not prompt:
            return


def show(pieces: Iterator[str]) -> str:
    """Prints pieces of text as they come and returns the whole."""
    whole = ""
    for piece in pieces:
        print(piece, end="", flush=True)
        whole += piece
    print()
    return whole
