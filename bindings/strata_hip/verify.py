"""`strata-hip verify`: a model on this backend against llama.cpp's CPU backend.

Two kinds of checks. Accuracy: the same text through both, at several batch sizes, with flash attention and without, with several types of
KV cache, with some layers left to the CPU; perplexity, Kullback-Leibler divergence, likeliest tokens. Sameness: runs that must give the
same bytes, since nothing that a right program computes from differs between them.
"""
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Sequence, TextIO, Tuple

import llama_cpp
import numpy as np

from . import engine, environment, llama, log, provenance, scores, verify_report
from .errors import StrataError
from .scores import Divergence, Scores
from .verify_report import Accuracy, Report, Sameness, Setting

STORY = pathlib.Path(__file__).parent / "story.txt"  # this project's own, under its licence
DEFAULT_TOKENS = 2048
LEAST_TOKENS = 32

UBATCHES = (64, 128, 512, 2048)
ONE_BY_ONE = 128  # positions that are decoded token by token, which takes other kernels than prompts do
REPEATED = 256    # positions of the runs that are only compared with each other
ANSWER = 16       # tokens that follow a prompt, the likeliest each


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What is still right, and why.

    Two right backends do not agree to the last bit: both round activations to 8 bits for quantized weights, each in its own way, sum in
    different orders, and where two tokens are nearly as likely such a bit decides. What two right ways of computing differ by depends on
    the model, and llama.cpp's CPU backend tells it: its own results with flash attention and without are compared first, and where they
    differ by more than a bound allows, that is the bound, some times over.

    Few tokens cannot tell a small difference of two means from chance: perplexities may differ by two standard errors of the mean paired
    difference more.
    """
    perplexity: float = 0.01         # against the CPU, and between batch sizes: faults seen in the field begin at 10 %
    offload: float = 0.005           # with fewer layers on the device, against all of them: most of the arithmetic is the same
    standard_errors: float = 2.0
    divergence_mean: float = 0.015   # nats; rounding costs 0.003 (SmolLM2 135M Q4_1) to 0.006 (Gemma 3 270M Q4_K_M)
    divergence_99: float = 0.1       # it costs 0.02 there
    divergence_max: float = 1.0      # and 0.04; a row of logits that is wrong is 5 to 20 nats off
    agreement: float = 0.90          # of likeliest tokens; two standard errors of the share less
    own_times: float = 4.0           # how many times the CPU's difference from itself is allowed


BOUNDS = Bounds()


@dataclasses.dataclass(frozen=True)
class Options:
    """What was asked for."""
    model: str
    text: Optional[str] = None       # a file; None: STORY
    tokens: Optional[int] = None     # None: DEFAULT_TOKENS, or as many as there are
    full: bool = False
    threads: Optional[int] = None
    runtime: Optional[str] = None
    output: str = "md"


def settings(n_tokens: int, full: bool) -> List[Setting]:
    """What is compared with the CPU, all layers on the device. A batch size above the number of tokens would repeat the one below."""
    ubatches = [n for i, n in enumerate(UBATCHES) if i == 0 or UBATCHES[i - 1] < n_tokens]
    # Only flash attention reads a quantized V.
    caches = {True: (("f16", "f16"), ("q8_0", "q8_0")), False: (("f16", "f16"), ("q8_0", "f16"))}
    sequences = (1, 4) if n_tokens >= 4 * LEAST_TOKENS else (1,)
    some = [Setting(n_tokens, ubatch, flash, k, v, n_seq) for n_seq in sequences for flash in (True, False) for k, v in caches[flash]
            for ubatch in ubatches]
    base = next(each for each in some if each.n_ubatch == default_ubatch(n_tokens))
    if not full:  # every value once, not every combination
        some = [each for each in some if sum(getattr(each, name) != getattr(base, name) for name in ("n_ubatch", "flash_attn", "n_seq"))
                + ((each.type_k, each.type_v) != (base.type_k, base.type_v)) <= 1]
    some.remove(base)
    one_by_one = [Setting(min(n_tokens, ONE_BY_ONE), 1, flash, k, v) for flash in (True, False) for k, v in caches[flash]]
    return [base, *some, *(one_by_one if full else one_by_one[:1])]


def default_ubatch(n_tokens: int) -> int:
    """llama.cpp's 512, or the largest batch size that makes a difference."""
    return max(n for i, n in enumerate(UBATCHES[:3]) if i == 0 or UBATCHES[i - 1] < n_tokens)


def offload_levels(n_layer: int, full: bool) -> List[int]:
    """Layers on the device; n_layer + 1 is the output too, and is what all other checks run with."""
    levels = [0, 1, n_layer // 2, n_layer] if full else [0, n_layer // 2, n_layer]
    return [*dict.fromkeys(levels)]


class Verification:
    """One run of `verify`.

    Args:
        folder: for large arrays.
        bar: a tqdm bar that counts tokens.
    """

    def __init__(self, options: Options, tokens: Sequence[int], folder: pathlib.Path, bar: Any):
        self.options, self.tokens, self.folder, self.bar = options, list(tokens), folder, bar
        self.bounds = BOUNDS
        self.references: Dict[Tuple, Tuple[Scores, np.ndarray]] = {}
        self.own: Optional[Accuracy] = None  # the CPU without flash attention against the CPU with it
        self.accuracy: List[Accuracy] = []
        self.sameness: List[Sameness] = []
        self.left_out: List[str] = []

    def amount(self, wanted: Sequence[Setting]) -> int:
        """Tokens that are read in all, for the progress bar."""
        on_cpu = len({self.reference_key(setting) for setting in wanted}) + 1
        repeated = sum(times * setting.n_tokens for _, setting, times in self.repetitions(wanted[0]))
        whole_texts = on_cpu + len(offload_levels(8, self.options.full))
        return sum(setting.n_tokens for setting in wanted) + whole_texts * len(self.tokens) + repeated

    # The CPU

    def make_references(self, wanted: Sequence[Setting]) -> List[Setting]:
        """Scores on the CPU, and ln p of every token at every position; returns the settings that it can compute. Raises StrataError."""
        possible: List[Setting] = []
        model = engine.Model(self.options.model, llama.device_list("cpu", None), 0)
        try:
            base = wanted[0]
            without = dataclasses.replace(base, flash_attn=False)
            for setting in [base, without, *wanted]:
                key = self.reference_key(setting)
                if key not in self.references:
                    n_tokens = len(self.tokens) if setting.n_seq == 1 else setting.n_tokens
                    whole = dataclasses.replace(setting, n_tokens=n_tokens, n_ubatch=default_ubatch(n_tokens))
                    kept = self.array(f"{len(self.references)}.f16", n_tokens, model.n_vocab)
                    try:
                        self.references[key] = (self.run(model, whole, keep=kept)[0], kept)
                    except StrataError as error:
                        if setting.type_k == "f16":
                            raise
                        # Block types need rows of whole blocks, which not every model's heads are.
                        self.left_out.append(f"KV {verify_report.cache(setting)}: {error}")
                        continue
                if setting in wanted and setting not in possible:
                    possible.append(setting)
            self.own = self.compare(model, without, against=base)
        finally:
            model.close()
        return possible

    def array(self, name: str, n_tokens: int, n_vocab: int) -> np.ndarray:
        """[positions, vocabulary] on disk: memory does not hold several of a large vocabulary. f16 is exact to 0.05 % of ln p, which is
        a ten thousandth of a nat where it counts. Raises StrataError if there is no room."""
        path, size = self.folder / name, n_tokens * n_vocab * 2
        try:
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise StrataError(f"no {size / 2**30:.1f} GiB for the CPU's probabilities in {self.folder.parent} ({error}): read fewer "
                              "--tokens, or name another folder in TMPDIR") from None
        return np.memmap(path, np.float16, "r+", shape=(n_tokens, n_vocab))

    @staticmethod
    def reference_key(setting: Setting) -> Tuple:
        """Settings that the CPU computes alike: its batch sizes are no question here, and fewer tokens are the beginning of more."""
        return setting.flash_attn, setting.type_k, setting.type_v, setting.n_seq

    # Runs

    def run(self, model: engine.Model, setting: Setting, **more: Any) -> Tuple[Scores, Optional[np.ndarray]]:
        """scores.score() of a fresh context."""
        self.bar.set_postfix_str(verify_report.describe(setting))
        sequences = scores.split(self.tokens[:setting.n_tokens], setting.n_seq)
        with self.context(model, setting) as context:
            result = scores.score(context, sequences, n_batch=1 if setting.n_ubatch == 1 else 0, **more)
        self.bar.update(setting.n_tokens)
        return result

    @contextlib.contextmanager
    def context(self, model: engine.Model, setting: Setting, **more: Any) -> Iterator[engine.Context]:
        """A context for a setting; more: other fields of llama_context_params."""
        parameters: Dict[str, Any] = dict(
            n_ctx=setting.n_tokens, n_batch=max(setting.n_ubatch, 512), n_ubatch=max(setting.n_ubatch, 16), n_seq_max=setting.n_seq,
            flash_attn_type=int(setting.flash_attn), type_k=setting.type_k, type_v=setting.type_v)
        if self.options.threads:
            parameters.update(n_threads=self.options.threads, n_threads_batch=self.options.threads)
        context = engine.Context(model, **{**parameters, **more})
        try:
            yield context
        finally:
            context.close()

    def compare(self, model: engine.Model, setting: Setting, against: Optional[Setting] = None) -> Accuracy:
        """A setting against the CPU's scores for it, or for another setting."""
        expected, ln_p = self.references[self.reference_key(against or setting)]
        got, divergence = self.run(model, setting, reference=ln_p)
        assert divergence is not None
        if setting.n_seq == 1:
            expected = Scores(expected.loss[:setting.n_tokens - 1], expected.likeliest[:setting.n_tokens], "")
        difference = got.loss - expected.loss
        return Accuracy(
            setting=setting, perplexity=got.perplexity, cpu_perplexity=expected.perplexity, difference=float(np.expm1(difference.mean())),
            noise=standard_error(difference), divergence=Divergence.of(divergence), agreement=got.agreement(expected), loss=got.loss,
            digest=got.digest)

    # Accuracy

    def check_accuracy(self, model: engine.Model, wanted: Sequence[Setting]) -> None:
        """Every setting, all layers on the device."""
        for setting in wanted:
            measured = self.compare(model, setting)
            measured.failures += self.wrong(measured)
            # Batch sizes against each other
            for other in self.accuracy:
                if dataclasses.replace(other.setting, n_ubatch=setting.n_ubatch) == setting:
                    measured.failures += self.apart(measured, other, self.bounds.perplexity, f"ubatch {other.setting.n_ubatch}")
                    break
            self.accuracy.append(measured)

    def check_offload(self, level: int) -> None:
        """The first setting with fewer layers on the device. The CPU computes the rest: fewer tokens, if it is to take no longer."""
        base = self.accuracy[0]
        setting = dataclasses.replace(base.setting, n_gpu_layers=level)
        model = engine.Model(self.options.model, llama.device_list("strata-hip", self.options.runtime), level)
        try:
            measured = self.compare(model, setting)
        finally:
            model.close()
        measured.failures += self.wrong(measured) + self.apart(measured, base, self.bounds.offload, "all layers")
        self.accuracy.append(measured)

    def wrong(self, measured: Accuracy) -> List[str]:
        """What is outside the bounds, against the CPU."""
        bounds, own, count = self.bounds, self.own, measured.setting.n_tokens
        assert own is not None
        failures = []

        def above(name: str, value: float, bound: float, of_cpu: float) -> None:
            limit = max(bound, bounds.own_times * of_cpu)
            if not value <= limit:  # not a number, too
                failures.append(f"{name} is {value:.4g}, at most {limit:.4g} is right")

        lost = int(np.isnan(measured.loss).sum())
        if lost:
            failures.append(f"logits of {lost} positions are not finite")
        above("perplexity's difference", abs(measured.difference), bounds.perplexity + bounds.standard_errors * measured.noise, 0)
        above("mean divergence", measured.divergence.mean, bounds.divergence_mean, own.divergence.mean)
        above("divergence at 99 %", measured.divergence.percentile_99, bounds.divergence_99, own.divergence.percentile_99)
        above("largest divergence", measured.divergence.largest, bounds.divergence_max, own.divergence.largest)
        share = min(bounds.agreement, 1 - bounds.own_times * (1 - own.agreement))
        share -= bounds.standard_errors * float(np.sqrt(max(share * (1 - share), 0) / count))
        if measured.agreement < share:
            failures.append(f"likeliest tokens agree at {measured.agreement:.1%}, at least {share:.1%} is right")
        return failures

    def apart(self, measured: Accuracy, other: Accuracy, bound: float, name: str) -> List[str]:
        """Whether two runs of this backend over the same positions differ by too much."""
        difference = measured.loss - other.loss
        value, limit = abs(float(np.expm1(difference.mean()))), bound + self.bounds.standard_errors * standard_error(difference)
        return [] if value <= limit else [f"perplexity is {value:.2%} from {name}'s, at most {limit:.2%} is right"]

    # Sameness

    def repetitions(self, base: Setting) -> List[Tuple[str, Setting, int]]:
        """(name, setting, number of runs) of what must give the same bytes every time; the last run waits for each launch."""
        full = self.options.full
        prompt = dataclasses.replace(base, n_tokens=len(self.tokens) if full else min(len(self.tokens), REPEATED))
        one_by_one = dataclasses.replace(base, n_tokens=min(len(self.tokens), ONE_BY_ONE if full else ANSWER), n_ubatch=1)
        quick = [("prompt", prompt, 3), ("tokens one by one", one_by_one, 3)]
        if not full:
            return quick
        return [*((name, setting, 4) for name, setting, _ in quick), ("prompt, fa off", dataclasses.replace(prompt, flash_attn=False), 4)]

    def check_sameness(self, model: engine.Model) -> None:
        """Repeated runs, runs that wait for every launch, a slot used twice, a question among other people's."""
        base, full = self.accuracy[0].setting, self.options.full
        for name, setting, runs in self.repetitions(base):
            digests = [self.run(model, setting)[0].digest for _ in range(runs - 1)]
            self.same(f"{name}: repeated", digests)
            with environment.changed(STRATA_SYNC="1", STRATA_EMULATOR_SYNC="1"):  # a context reads them when it is made
                self.same(f"{name}: launches waited for", [digests[0], self.run(model, setting)[0].digest])
        for setting in [base] + ([dataclasses.replace(base, flash_attn=False)] if full else []):
            self.check_slot(model, setting)
            self.check_others(model, setting, rounds=10 if full else 2, per_sequence=256 if full else 32)

    def same(self, name: str, digests: Sequence[str]) -> None:
        """Notes whether all are equal."""
        differing = [i + 1 for i, digest in enumerate(digests) if digest != digests[0]]
        self.sameness.append(Sameness(name, len(digests), [f"run {i} gives other bytes than run 1" for i in differing]))

    def check_slot(self, model: engine.Model, setting: Setting) -> None:
        """A prompt and its answer; then, in the same sequence, another prompt: as in a context that never saw the first."""
        length = min(len(self.tokens) // 2, 128)
        first, second = self.tokens[:length], [self.tokens[0], *self.tokens[-length + 1:]]
        setting = dataclasses.replace(setting, n_tokens=length + ANSWER)
        with self.context(model, setting) as context:
            scores.greedy(context, first, ANSWER)
            if not llama_cpp.llama_memory_seq_rm(context.memory, 0, -1, -1):
                raise StrataError(f"{model.path}: llama.cpp cannot empty a slot of this model")
            used = digest_of(*scores.greedy(context, second, ANSWER))
        with self.context(model, setting) as context:
            fresh = digest_of(*scores.greedy(context, second, ANSWER))
        self.same(f"slot used before{'' if setting.flash_attn else ', fa off'}", [fresh, used])

    def check_others(self, model: engine.Model, setting: Setting, rounds: int, per_sequence: int) -> None:
        """Eight sequences at once, then a question of one's own beside them: the same answer every time, and the one that is given
        without them."""
        per_sequence = min(per_sequence, len(self.tokens) // 2)
        offsets = [i * (len(self.tokens) - per_sequence) // 7 for i in range(8)]
        others = [self.tokens[offset:offset + per_sequence] for offset in offsets]
        question = self.tokens[:min(LEAST_TOKENS, len(self.tokens) // 2)]
        setting = dataclasses.replace(setting, n_tokens=9 * (per_sequence + ANSWER + LEAST_TOKENS), n_seq=9)
        digests: List[str] = []
        with self.context(model, setting, kv_unified=True) as context:
            for _ in range(rounds):
                context.clear()
                for _, _ in scores.decode(context, others):
                    pass
                tokens, logits = scores.greedy(context, question, ANSWER, sequence=8)
                digests.append(digest_of(tokens, logits))
        with self.context(model, setting, kv_unified=True) as context:
            alone, alone_logits = scores.greedy(context, question, ANSWER, sequence=8)
        name = f"question beside 8 sequences{'' if setting.flash_attn else ', fa off'}"
        self.same(f"{name}: {rounds} times", digests)
        # Other places in the cache are other orders of summation: near, not equal. Compared up to the first token that differs.
        common = next((i for i, (a, b) in enumerate(zip(tokens, alone)) if a != b), ANSWER - 1) + 1
        expected = scores.log_probabilities(alone_logits[:common])
        apart = scores.divergences(expected, scores.log_probabilities(logits[:common])).max()
        assert self.own is not None
        limit = max(self.bounds.divergence_max, self.bounds.own_times * self.own.divergence.largest)
        far = [] if apart <= limit else [f"divergence from the answer given alone is {apart:.3g}, at most {limit:.3g} is right"]
        self.sameness.append(Sameness(f"{name}: as alone", 2, far))


def standard_error(values: np.ndarray) -> float:
    """Of the mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")


def digest_of(tokens: Sequence[int], logits: np.ndarray) -> str:
    """Of tokens and the logits that chose them."""
    return hashlib.sha256(repr(list(tokens)).encode() + logits.tobytes()).hexdigest()


def read_tokens(options: Options) -> List[int]:
    """The tokens of the text, as many as asked for. Raises StrataError if there are too few."""
    path = pathlib.Path(options.text) if options.text else STORY
    try:
        text = path.read_bytes()
    except OSError as error:
        raise StrataError(f"the text cannot be read: {error}") from None
    model = engine.Model(options.model, llama.device_list("cpu", None), 0, vocab_only=True)
    try:
        if llama_cpp.llama_model_has_encoder(model.handle) or not llama_cpp.llama_model_has_decoder(model.handle):
            raise StrataError(f"{options.model} does not continue text: there are no next tokens to verify")
        tokens = model.tokens(text)
        trained = llama_cpp.llama_model_n_ctx_train(model.handle)
    finally:
        model.close()
    wanted = options.tokens or min(DEFAULT_TOKENS, len(tokens), trained or DEFAULT_TOKENS)
    if wanted > len(tokens):
        raise StrataError(f"{path} has {len(tokens)} tokens in this model's vocabulary, fewer than --tokens {wanted}")
    if wanted < LEAST_TOKENS:
        raise StrataError(f"{wanted} tokens are too few to tell anything; at least {LEAST_TOKENS}")
    return tokens[:wanted]


def run(options: Options, out: TextIO) -> int:
    """Verifies and reports; the exit code: 0, or 1 if anything is outside the bounds. Raises StrataError."""
    import tqdm
    with log.captured(quiet=True):  # what goes wrong comes back in exceptions
        tokens = read_tokens(options)
        device_list = llama.device_list("strata-hip", options.runtime)  # rather fails now than after the CPU's minutes
        wanted = settings(len(tokens), options.full)
        with tempfile.TemporaryDirectory(prefix="strata-verify-") as folder, \
                tqdm.tqdm(unit="token", leave=False, file=sys.stderr, disable=not sys.stderr.isatty()) as bar:
            work = Verification(options, tokens, pathlib.Path(folder), bar)
            bar.total = work.amount(wanted)
            bar.set_description("CPU")
            wanted = work.make_references(wanted)
            bar.set_description("device")
            model = engine.Model(options.model, device_list, -1)
            try:
                n_layer = model.n_layer
                work.check_accuracy(model, wanted)
                work.check_sameness(model)
            finally:
                model.close()
            bar.set_description("layers")
            for level in offload_levels(n_layer, options.full):
                work.check_offload(level)
            assert work.own
            report = Report(
                model=options.model, text=options.text or "the built-in story", n_tokens=len(tokens), full=options.full,
                origin=provenance.of("strata-hip"), bounds=dataclasses.asdict(work.bounds), own=work.own, accuracy=work.accuracy,
                sameness=work.sameness, left_out=work.left_out)
    verify_report.PRINTERS[options.output](report, out)
    return 0 if report.passed else 1
