"""strata_hip.Llama: everything llama_cpp.Llama does, on the emulator, and stock behaviour without a backend."""
import gc
import inspect
import pickle
import warnings

import llama_cpp
import numpy as np
import pytest

import strata_hip
from strata_hip import Llama, models, plugin

QUESTION = [{"role": "user", "content": "What is a computer?"}]


def load(**arguments) -> Llama:
    return Llama(models.smollm2(), **{"n_ctx": 128, "verbose": False, **arguments})


@pytest.fixture(scope="module", params=["emulator", "cpu"])
def llm(request):
    """A model on the emulator, and the same on the CPU: what holds for one holds for the other."""
    arguments = {"device": "emulator"} if request.param == "emulator" else {"backend": "cpu"}
    model = load(flash_attn=True, **arguments)
    yield model
    model.close()


def test_is_a_drop_in_subclass():
    assert issubclass(Llama, llama_cpp.Llama)
    ours = inspect.signature(Llama.__init__).parameters
    assert list(ours)[:2] == ["self", "model_path"] and any(p.kind is p.VAR_KEYWORD for p in ours.values())


def test_all_layers_are_on_the_device():
    model = load(device="emulator")
    assert model.model_params.n_gpu_layers == 0x7FFFFFFF
    before = plugin.loaded().counter("launches")
    model("Hello", max_tokens=1)
    assert plugin.loaded().counter("launches") > before + 100
    model.close()


@pytest.mark.parametrize("backend", [None, "cpu"])
def test_without_a_backend_nothing_reaches_the_device(backend):
    plugin.load("emulator")
    gc.collect()  # models of other tests that wait for it would be given back in between
    before = plugin.loaded().counter("launches"), plugin.loaded().counter("allocated_bytes")
    # n_gpu_layers asks stock llama_cpp for any GPU there is: ours must not be one
    model = load(backend=backend, n_gpu_layers=-1)
    text = model("The capital of France is", max_tokens=4, temperature=0)["choices"][0]["text"]
    model.close()
    assert (plugin.loaded().counter("launches"), plugin.loaded().counter("allocated_bytes")) == before
    stock = llama_cpp.Llama(str(models.smollm2()), n_ctx=128, verbose=False, n_gpu_layers=0)
    assert stock("The capital of France is", max_tokens=4, temperature=0)["choices"][0]["text"] == text
    stock.close()


def test_completion(llm):
    got = llm("One, two, three, four, five, six,", max_tokens=4, temperature=0)
    assert got["choices"][0]["text"].strip().startswith("seven")
    assert got["usage"]["completion_tokens"] == 4 and got["choices"][0]["finish_reason"] == "length"


def test_streaming_gives_the_same_text_piece_by_piece(llm):
    prompt = "One, two, three, four, five, six,"
    whole = llm(prompt, max_tokens=6, temperature=0)["choices"][0]["text"]
    pieces = [chunk["choices"][0]["text"] for chunk in llm(prompt, max_tokens=6, temperature=0, stream=True)]
    assert len(pieces) > 3 and "".join(pieces) == whole


def test_chat(llm):
    answer = llm.create_chat_completion(QUESTION, max_tokens=12, temperature=0)
    message = answer["choices"][0]["message"]
    assert message["role"] == "assistant" and "computer" in message["content"]
    chunks = list(llm.create_chat_completion(QUESTION, max_tokens=12, temperature=0, stream=True))
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == message["content"]


def test_seeded_sampling_repeats(llm):
    texts = []
    for seed in (7, 7, 8):
        llm.reset()  # else the prompt's tokens would still be there, and its last one be decoded alone
        texts.append(llm("Once upon a time", max_tokens=6, temperature=1.0, seed=seed)["choices"][0]["text"])
    assert texts[0] == texts[1] != texts[2]


def test_saved_state_comes_back(llm):
    llm.reset()
    llm.eval(llm.tokenize(b"The quick brown fox"))
    state = llm.save_state()
    llm.eval(llm.tokenize(b" jumps", add_bos=False))
    expected = np.array(llm.eval_logits[-1])
    llm.reset()
    llm.eval(llm.tokenize(b"Something else entirely, which overwrites the cache"))
    llm.load_state(state)
    llm.eval(llm.tokenize(b" jumps", add_bos=False))
    np.testing.assert_array_equal(np.array(llm.eval_logits[-1]), expected)


def nmse(got: np.ndarray, expected: np.ndarray) -> float:
    return float(((got.astype(float) - expected) ** 2).sum() / (expected.astype(float) ** 2).sum())


@pytest.mark.parametrize("arguments", [{}, {"flash_attn": True}, {"n_ubatch": 8}, {"offload_kqv": False}, {"n_gpu_layers": 7}],
                         ids=lambda a: "-".join(map(str, a)) or "default")
def test_logits_all(arguments):
    """Logits of every position, near those of the CPU, for each of the context's arguments that change the graph."""
    scores = []
    for where in ({"device": "emulator", **arguments}, {"backend": "cpu"}):
        model = load(logits_all=True, **where)
        tokens = model.tokenize(b"The lighthouse at Corran Point was built in the spring of 1871")
        model.eval(tokens)
        scores.append(model.scores[:len(tokens)].copy())
        model.close()
    assert np.isfinite(scores[0]).all()
    error = nmse(*scores)
    print(f"NMSE {error:.2e}")
    assert error < 2e-3


def test_logprobs():
    model = load(logits_all=True, device="emulator")
    got = model("One, two, three,", max_tokens=3, temperature=0, logprobs=3)["choices"][0]["logprobs"]
    assert len(got["tokens"]) == 3
    assert all(len(top) >= 3 and max(top.values()) == pytest.approx(own)
               for top, own in zip(got["top_logprobs"], got["token_logprobs"]))
    model.close()


def test_embeddings():
    texts = ["The cat sat on the mat.", "A cat is sitting on a mat.", "Interest rates rose by half a percent."]
    vectors = []
    for where in ({"device": "emulator"}, {"backend": "cpu"}):
        model = load(embedding=True, pooling_type=llama_cpp.LLAMA_POOLING_TYPE_MEAN, **where)
        vectors.append(np.array([item["embedding"] for item in model.create_embedding(texts)["data"]]))
        model.close()
    assert vectors[0].shape == (3, 576)
    assert nmse(*vectors) < 2e-3


def test_cache_types_pass_through():
    model = load(device="emulator", flash_attn=True, type_k=llama_cpp.GGML_TYPE_F16, type_v=llama_cpp.GGML_TYPE_F16, n_ubatch=32)
    assert (model.context_params.type_k, model.context_params.n_ubatch) == (llama_cpp.GGML_TYPE_F16, 32)
    assert model.context_params.flash_attn_type == llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
    model.close()


def test_pickle_keeps_backend_and_device():
    model = load(device="emulator")
    state = model.__getstate__()
    assert state["backend"] == "strata-hip" and state["device"] == "emulator" and state["n_gpu_layers"] == 0x7FFFFFFF
    copy = pickle.loads(pickle.dumps(model))
    assert copy("One, two,", max_tokens=2, temperature=0)["choices"] == model("One, two,", max_tokens=2, temperature=0)["choices"]
    copy.close()
    model.close()


def test_two_models_at_once():
    """Two models on one device take turns without disturbing each other."""
    prompts = ["One, two, three,", "Monday, Tuesday,"]
    first, second = load(device="emulator"), load(device="emulator")
    alone = [first(prompt, max_tokens=4, temperature=0)["choices"][0]["text"] for prompt in prompts]
    streams = [model(prompt, max_tokens=4, temperature=0, stream=True) for model, prompt in zip((first, second), prompts)]
    texts = ["", ""]
    for chunks in zip(*streams):
        for i, chunk in enumerate(chunks):
            texts[i] += chunk["choices"][0]["text"]
    assert all(whole.startswith(text) and text for whole, text in zip(alone, texts))
    first.close()
    second.close()


@pytest.mark.parametrize("arguments,words", [
    ({"backend": "cuda"}, "strata-hip"), ({"device": "gfx1151"}, "emulator")])
def test_wrong_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        load(**arguments)


def test_the_plugin_is_in_the_registry_that_llama_cpp_uses():
    plugin.load("emulator")
    assert llama_cpp.llama_supports_gpu_offload()
    copies = {line.split()[-1] for line in open("/proc/self/maps") if "/libggml.so" in line}
    assert len(copies) == 1


def test_work_left_to_the_cpu_is_told():
    """Attention has no kernel for a cache of type q4_K, which no program offers: llama.cpp gives it to the CPU, which must not go unnoticed."""
    with pytest.warns(strata_hip.CpuWorkWarning, match=r"part of the model computes on the CPU: \d+ graph splits"):
        Llama(models.gemma3(), device="emulator", n_ctx=64, verbose=False, flash_attn=True, type_k=12, type_v=12).close()  # GGML_TYPE_Q4_K


@pytest.mark.parametrize("arguments", [{}, {"flash_attn": True}, {"n_gpu_layers": 10}, {"offload_kqv": False},
                                       {"flash_attn": True, "type_k": 8, "type_v": 2}])  # GGML_TYPE_Q8_0, GGML_TYPE_Q4_0
def test_no_warning_of_cpu_work(arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error", strata_hip.CpuWorkWarning)
        load(device="emulator", **arguments).close()


def test_misuse_is_told():
    with pytest.raises(TypeError, match="positional"), warnings.catch_warnings():
        warnings.simplefilter("error", pytest.PytestUnraisableExceptionWarning)
        Llama(models.smollm2(), "emulator")
    model = load(device="emulator")
    model.close()
    with pytest.raises(strata_hip.DeviceError, match="closed"):
        model("Hello", max_tokens=1)


@pytest.mark.parametrize("where", [{"device": "emulator"}, {"backend": "cpu"}], ids=["emulator", "cpu"])
def test_the_context_has_the_size_that_was_asked_for(where):
    """llama.cpp rounds it up to 256."""
    model = load(n_ctx=20, **where)
    for prompt in ("word " * 30, "word " * 300):
        with pytest.raises(ValueError, match=r"^Requested tokens \(\d+\) exceed context window of 20$"):
            model(prompt, max_tokens=1)
        with pytest.raises(ValueError, match=r"^Requested tokens \(\d+\) exceed context window of 20$"):
            model.eval(model.tokenize(prompt.encode()))
    got = model("One, two, three, four, five, six,", max_tokens=None, temperature=0)
    assert got["usage"]["total_tokens"] == 20 and got["choices"][0]["finish_reason"] == "length"
    model.close()
