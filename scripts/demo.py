#!/usr/bin/env python3
"""`make demo`: two real models answer on the emulated GPU, then a table says how fast it was.

Every layer of both is computed by this project's gfx1151 machine code, which the emulator executes on the CPU."""
import sys
import time

from strata_hip import Llama, StrataError, cli, log, models

QUESTION = "What is a computer?"
OPENING = "The history of computing began with"
CHAT_TOKENS = 32
TEXT_TOKENS = 32


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def stream(pieces) -> None:
    """Prints a model's text as it comes, then the rate."""
    start, count = time.monotonic(), 0
    for piece in pieces:
        print(piece, end="", flush=True)
        count += bool(piece)
    print(f"\n({count} pieces in {time.monotonic() - start:.1f} s)", flush=True)


def main() -> int:
    chat_model, text_model = models.smollm2(), models.gemma3()
    with log.captured(quiet=True):
        heading("Device")
        cli.main(["devices", "--runtime", "emulator"])

        heading("SmolLM2 135M Instruct (Q4_1, arch llama): a chat question")
        llm = Llama(chat_model, device="emulator", n_ctx=512, flash_attn=True, verbose=False)
        print(f"> {QUESTION}", flush=True)
        chunks = llm.create_chat_completion([{"role": "user", "content": QUESTION}], max_tokens=CHAT_TOKENS, temperature=0,
                                            stream=True)
        stream(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        llm.close()

        heading("Gemma 3 270M (Q4_K_M, arch gemma3): continuing a text")
        llm = Llama(text_model, device="emulator", n_ctx=512, flash_attn=True, verbose=False)
        print(OPENING, end="", flush=True)
        stream(chunk["choices"][0]["text"] for chunk in llm(OPENING, max_tokens=TEXT_TOKENS, temperature=0, stream=True))
        llm.close()

    heading("strata-hip bench --runtime emulator -p 32 -n 4 -r 2 -fa on")
    return cli.main(["bench", "--runtime", "emulator", "-m", f"{chat_model},{text_model}", "-p", "32", "-n", "4", "-r", "2",
                     "-fa", "on"])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StrataError as error:
        sys.exit(f"strata-hip: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
