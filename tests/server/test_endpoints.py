"""The endpoints of llama-server, with a toy model on the device."""
import llama_cpp
import numpy as np
import openai
import pytest

from strata_hip import Llama
from support.ops import nmse
from support.server import serving, sure

pytestmark = pytest.mark.timeout(1800)  # the first builds llama-server

PROMPT = "The sea was calm that night, and the lamp on the pier"
MARGIN = 1e-2


@pytest.fixture(scope="module")
def client(server):
    """The official client."""
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300)


@pytest.fixture(scope="module")
def cpu(toy):
    """The same model on llama.cpp's CPU backend."""
    return Llama(str(toy()), backend="cpu", n_ctx=512, verbose=False)


def test_health(server):
    assert server.get("/health") == {"status": "ok"} == server.get("/v1/health")


def test_props(server, toy):
    props = server.get("/props")
    assert props["total_slots"] == 4 and props["model_path"] == str(toy()) and props["default_generation_settings"]["n_ctx"] == 512
    assert "message.role" in props["chat_template"]


def test_models(client):
    assert [model.id for model in client.models.list()] == ["toy"]


def test_completion(server, cpu):
    """What the CPU backend writes, and the same in one piece and in many."""
    answer = server.complete(PROMPT, 24, n_probs=2)
    assert sure(answer, MARGIN), "the CPU backend may write something else; take another prompt"
    assert answer["tokens_predicted"] == 24 and answer["stop_type"] == "limit"
    assert answer["content"] == cpu.create_completion(PROMPT, max_tokens=24, temperature=0)["choices"][0]["text"]
    pieces = [*server.stream("/completion", prompt=PROMPT, n_predict=24, temperature=0)]
    assert len(pieces) > 12 and pieces[-1]["stop"]
    assert "".join(piece["content"] for piece in pieces) == answer["content"]


def test_openai_completion(server, client):
    answer = client.completions.create(model="toy", prompt=PROMPT, max_tokens=12, temperature=0)
    assert answer.choices[0].text == server.complete(PROMPT, 12)["content"] and answer.usage.completion_tokens == 12


def test_openai_chat(server, client):
    """In one piece and in many: the completion of what the model's template makes of the messages."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a computer?"}]
    prompt = server.post("/apply-template", messages=messages)["prompt"]
    assert prompt == "system: Be brief.\nuser: What is a computer?\nassistant:"
    wanted = server.complete(prompt, 20)["content"]
    given = dict(model="toy", messages=messages, max_tokens=20, temperature=0)
    answer = client.chat.completions.create(**given)
    assert answer.choices[0].message.content == wanted and answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 20
    with client.chat.completions.create(**given, stream=True) as stream:
        deltas = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert len(deltas) > 10 and "".join(deltas) == wanted


def test_errors_are_told(server, client):
    with pytest.raises(openai.BadRequestError, match="exceed"):
        client.completions.create(model="toy", prompt="a b c " * 400, max_tokens=1)
    assert server.get("/health") == {"status": "ok"}


def test_tokenize(server):
    text = "there is tea, caf\u00e9"
    pieces = server.post("/tokenize", content=text, with_pieces=True)["tokens"]
    assert any(piece["piece"] == "th" for piece in pieces), "pairs are tokens"
    assert [piece["piece"] for piece in pieces[-2:]] == [[0xc3], [0xa9]], "what is not ASCII is bytes"
    tokens = server.post("/tokenize", content=text)["tokens"]
    assert tokens == [piece["id"] for piece in pieces]
    assert server.post("/detokenize", tokens=tokens)["content"] == text


def test_slots_save_and_restore(server, slots_folder):
    """What a slot was told is read back: only what comes after it is computed, and the answer is that of the whole."""
    said = server.post("/tokenize", content=PROMPT, add_special=True)["tokens"]
    said += server.complete(said, 4, id_slot=0)["tokens"]
    saved = server.post("/slots/0?action=save", filename="slot")
    assert saved["n_saved"] == len(said) - 1, "the last token is not decoded yet"
    assert (slots_folder / "slot").stat().st_size == saved["n_written"]
    longer = said + server.post("/tokenize", content=" and so on")["tokens"]
    wanted = server.complete(longer, 16, id_slot=1, cache_prompt=False)
    server.complete("Something else altogether", 4, id_slot=0)
    server.post("/slots/0?action=erase")
    assert server.post("/slots/0?action=restore", filename="slot")["n_restored"] == saved["n_saved"]
    answer = server.complete(longer, 16, id_slot=0)
    assert answer["tokens"] == wanted["tokens"]
    assert (answer["timings"]["cache_n"], wanted["timings"]["cache_n"]) == (saved["n_saved"], 0)


def test_metrics(server):
    def read():
        lines = [line.split() for line in server.get("/metrics").splitlines() if not line.startswith("#")]
        return {name.removeprefix("llamacpp:"): float(value) for name, value in lines}

    before = read()
    server.complete(PROMPT, 5, cache_prompt=False)
    after = read()
    assert after["tokens_predicted_total"] - before["tokens_predicted_total"] == 5
    assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == len(server.post("/tokenize", content=PROMPT)["tokens"]) + 1
    assert after["requests_processing"] == 0


def test_embeddings(toy, tmp_path):
    """Those of the CPU backend, through the official client."""
    texts = [PROMPT, "A short one", "and another " * 20]
    with serving(toy(), "--embeddings", "--pooling", "mean", "-np", 2, "-c", 1024, "-a", "toy", log=tmp_path / "log") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300)
        made = [each.embedding for each in client.embeddings.create(model="toy", input=texts, encoding_format="float").data]
        alone = client.embeddings.create(model="toy", input=texts[1]).data[0].embedding
    wanted = Llama(str(toy()), backend="cpu", embedding=True, n_ctx=512, n_seq_max=1, pooling_type=llama_cpp.LLAMA_POOLING_TYPE_MEAN,
                   verbose=False)
    for text, ours in zip(texts, made):
        theirs = np.array(wanted.embed(text))
        assert nmse(np.array(ours), theirs / np.linalg.norm(theirs)) < 1e-6
    assert nmse(np.array(alone), np.array(made[1])) < 1e-6
