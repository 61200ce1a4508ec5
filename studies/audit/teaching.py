"""Code that people learn from, as it is: one function per repository, which yields its settings.

Only the models are replaced, and what draws numbers.
"""

import dataclasses
import math
import random
import sys
from functools import partial
from importlib import import_module
from types import SimpleNamespace

import numpy as np

from lab.gallery import GALLERY
from studies.audit.harness import (
    EOS,
    PROMPT,
    Cache,
    K,
    N,
    Network,
    P,
    Q,
    Rounds,
    Setting,
    by_rule,
    definitions,
    imported,
    logits,
    model,
    named,
    plain,
    wider,
)

try:
    import torch
except ImportError:  # a test wants to read the names only
    torch = None


def feifeibear(path):
    """It raises an error where token 0 is drawn, so each token is one more here."""
    code = imported(path, "sampling.speculative_sampling")

    class Shifted(Network):
        def __call__(self, ids, past_key_values=None, use_cache=False):
            n = ids.shape[1]
            if past_key_values is not None:
                known = past_key_values[0][0][0, :, :, 0]
                ids = torch.cat([known.long(), ids], dim=1)
            found = super().__call__(ids - 1, use_cache=False).logits[:, -n:]
            keys = ids[:, None, :, None]
            rows = torch.nn.functional.pad(found, (1, 0), value=-torch.inf)
            return SimpleNamespace(logits=rows, past_key_values=[[keys, keys]])

    def decode(n, ids, **given):
        prompt = torch.tensor([ids]) + 1
        found = code.speculative_sampling(prompt, Shifted(P), Shifted(Q), n, **given)
        return found[0, len(ids) :] - 1

    def whole_text():
        return decode(N, PROMPT, gamma=1)[:N]

    yield Setting("speculative_sampling, gamma = 1", whole_text, plain())
    for given in dict(gamma=K), dict(gamma=K, random_seed=1):
        name = named("speculative_sampling", **given, max_len=1)
        yield Rounds(name, partial(decode, 1, **given))


def romsto(path):
    chain = imported(path, "sampling", unneeded=["termcolor"]).speculative_generate
    ngrams = import_module("ngram_assisted")
    warm = import_module("utils.logits_processor").MultinomialProcessor(1.0)
    fixed = dict(gamma=K, max_gen_len=N, logits_processor=warm)
    endless = dict(eos_tokens_id=9, first_target=False)

    def by_draft(given):
        return chain(PROMPT, Network(P), Network(Q), **fixed, **given)[0]

    def by_ngrams(given):
        text = [0, 3, 1, 0, 3, 1, 0]  # with a sum of 0 modulo 4, as that of the prompt
        args = text, ngrams.OneLevelNGramStorage(2, len(P)), Network(Q)
        return ngrams.ngram_assisted_speculative_generate(*args, **fixed, **given)[0]

    for given in endless, endless | dict(skip_sample_adjustment=True):
        yield Setting(named("speculative_generate", **given), partial(by_draft, given), plain())
    for given in endless, dict(eos_tokens_id=EOS, first_target=True):
        name = named("ngram_assisted_speculative_generate, n = 2", **given)
        yield Setting(name, partial(by_ngrams, given), plain(eos=given["eos_tokens_id"]))


def jaymody(path):
    code = imported(path, "main", unneeded=("gpt2", "utils"))

    def all_rows(rows):
        return lambda ids: model(rows)(ids, len(ids))

    def decode():
        found = code.speculative_sampling(PROMPT, all_rows(P), all_rows(Q), N, K)
        return found[len(PROMPT) :][:N]

    yield Setting(f"speculative_sampling, K = {K}", decode, plain())


def torchcode(path):
    file = path / "solutions/34_speculative_decoding_solution.ipynb"
    solution = definitions(file, torch=torch).speculative_decode

    def without_a_bonus(drafted, p, q):
        return solution(q[:-1], p, drafted)

    yield by_rule(f"solution of task 34, K = {K}", without_a_bonus)


def leetgpu(path):
    """Its output is filled with zeros, so each token is one more here.

    The number 0 draws token 0 from any row. That is none here, and counts as the first one.
    """
    sys.path.insert(0, str(path / "challenges"))
    folder = path / "challenges/medium/87_speculative_decoding_verification"
    code = imported(folder, "challenge")

    def with_token_0(rows):
        return torch.nn.functional.pad(rows, (1, 0))[None].float()

    def verify(drafted, p, q):
        rows = with_token_0(p), with_token_0(q[:-1])
        tokens = drafted[None].int() + 1
        uniform = torch.rand(1, K + 1)
        out = torch.zeros(1, K + 1, dtype=torch.int32)
        sizes = 1, K, 1 + len(P)
        code.Challenge.reference_impl(None, tokens, *rows, uniform, out, *sizes)
        return out[out > 0] - 1 if out.any() else [0]

    yield by_rule(f"reference_impl of challenge 87, T = {K}", verify)


def from_scratch(path):
    yield from lesson_25(next(path.glob("phases/10-*/25-*")))
    yield from lesson_14(next(path.glob("phases/19-*/14-*")))


def lesson_25(path):
    """Its code knows one row only, so it gets the same one after each text."""
    code = imported(path / "code", "main")
    page = definitions(path / "docs/en.md", np=np, softmax=np.exp)
    page_knows = page.speculative_step.__globals__
    page_knows["draft_step"] = lambda state, token: [*state, token]
    draft, target = model(P), model(Q)

    def by_code(ids):
        return code.speculative_step(Q[0], P[0], K, np.random)

    def by_page(ids):
        def rows(net, drafted, temperature):
            return target([*ids, *drafted], K + 1)

        page_knows.update(draft_state_init=lambda: [*ids], target_forward_batched=rows)
        return page.speculative_step(None, lambda state: np.log(draft(state)[-1]), K)

    one_row = np.tile(Q[0], (len(Q), 1))
    yield Rounds(f"lesson 10/25, code, K = {K}, one row for all texts", by_code, one_row)
    yield Rounds(f"lesson 10/25, page, K = {K}", by_page, raises=ValueError)


def lesson_14(path):
    code = imported(path / "code", "main")

    def verify(drafted, p, q):
        known = code.TargetModel()
        known.distribution = lambda place: q[place].tolist()
        accepted, token = known.verify(drafted.tolist(), 0, random)
        return [*accepted, token]

    yield by_rule(f"lesson 19/14, code, K = {K}", verify)


# ---- 2026 ----


def no_magic(path):
    """Its networks in plain Python are replaced, its caches are not."""
    used = dict(math=math, BLOCK_SIZE=99, SPEC_K=K, Cfg=dict, random=WithChoices)
    lessons = path / "03-systems"
    code = definitions(lessons / "microspeculative.py", **used)
    beam = definitions(lessons / "microbeam.py", **used)
    for each in code, beam:
        each.decode_speculative.__globals__["forward_float"] = forward_in_lists

    def arguments(eos):
        sizes = dict(vocab_size=len(P), n_layer=1, bos=eos)
        return [*PROMPT], logits(Q), logits(P), sizes, sizes

    def decode(eos):
        return code.decode_speculative(*arguments(eos), N, K, temperature=1.0)[0][:N]

    def by_beam():
        return beam.decode_speculative(*arguments(9), N, K)[0][:N]

    def until(eos):
        prompt, target, _, sizes, _ = arguments(eos)
        return code.decode_verifier_only(prompt, target, sizes, N, temperature=1.0)[0]

    for eos in 9, EOS:
        name = f"microspeculative.py, K = {K}" + (f", eos = {eos}" if eos == EOS else "")
        yield Setting(name, partial(decode, eos), partial(until, eos))
    yield Setting(f"microbeam.py, K = {K}", by_beam, plain())


class WithChoices:
    """Python's random, with choices for a single draw."""

    random = staticmethod(lambda: np.random.random())

    @staticmethod
    def choices(population, weights):
        return [np.random.choice(population, p=weights)]


def forward_in_lists(token, place, cache, table, sizes):
    """The logits after a token, which joins a cache made of lists."""
    for tokens in cache[0].values():
        tokens.append([token])
    total = sum(token for (token,) in cache[0]["k"])
    return table[total % len(table)].tolist()


def levvius(path):
    used = dict(dataclass=dataclasses.dataclass, random=random)
    code = definitions(path / "sp_samp/sampling.py", **used)

    class Model:
        def __init__(self, rows, call=model):
            self.call = call(rows)
            self.vocab_size = rows.shape[1]

        def next_token_probs(self, ids):
            return self.call(ids)[-1].tolist()

    def decode(call):
        models = Model(Q, call), Model(P, call)
        return code.speculative_sample(*models, PROMPT, N, K, np.random)

    def target_alone():
        return code.sample_baseline(Model(Q, by_last_token), PROMPT, N, np.random)

    yield Setting(f"speculative_sample, k = {K}", partial(decode, model), plain())
    name = f"speculative_sample, k = {K}, rows that depend on the last token only"
    yield Setting(name, partial(decode, by_last_token), target_alone)


def by_last_token(rows):
    return lambda ids: rows[[ids[-1]]]


def infer(path):
    """Its engine with its caches. What is about grammars needs Python 3.14, and is left out."""
    engine = "engine", "continuous_runner", "generate", "runner", "scheduler"
    unneeded = ["infer.structured", "infer.structured.logit_mask"]
    unneeded += [f"infer.engine.{name}" for name in engine]
    runner = imported(path / "src", "infer.engine.speculative_runner", unneeded)
    config = import_module("infer.engine.config").EngineConfig
    request = import_module("infer.engine.request").Request
    params = import_module("infer.engine.sampler").SamplingParams
    given = dict(batching_mode="continuous", use_speculative_decoding=True, draft_model="draft")
    settings = config("target", device="cpu", max_seq_len=16, spec_length=K, **given)
    tokenizer = SimpleNamespace(eos_token_ids={9}, decode=lambda ids, **_: "")

    class Slotted(Network):
        def __call__(self, ids, kv_cache, **_):
            keys = ids[:, None, :, None].to(torch.bfloat16)
            known = kv_cache.update(0, keys, keys)[0][:, 0, :, 0]
            kv_cache.advance(ids.shape[1])
            return super().__call__(known.long(), use_cache=False).logits[:, -ids.shape[1] :]

    def decode(penalty):
        networks = Slotted(Q), Slotted(P)
        for each in networks:
            sizes = dict(num_hidden_layers=1, num_key_value_heads=1, computed_head_dim=1)
            each.config = SimpleNamespace(**sizes)
        engine = runner.SpeculativeRunner(*networks, tokenizer, settings)
        sampling = params(temperature=1.0, max_new_tokens=N, repetition_penalty=penalty)
        text = request("text", [*PROMPT], sampling, 0.0)
        engine.step([text], [])
        while len(text.generated_token_ids) < N:
            engine.step([], [text])
        return text.generated_token_ids[:N]

    def alone(penalty):
        ids = [*PROMPT]
        target = Network(Q)
        sampling = params(temperature=1.0, repetition_penalty=penalty)
        for _ in range(N):
            row = target(torch.tensor([ids]), use_cache=False).logits[0, -1]
            ids.append(runner.sample_token(row, ids, sampling))
        return ids[len(PROMPT) :]

    for penalty in 1.0, 1.5:
        name = f"SpeculativeRunner, spec_length = {K}, repetition_penalty = {penalty}"
        yield Setting(name, partial(decode, penalty), partial(alone, penalty))


def taiyoo(path):
    code = imported(path / "src", "speculative")

    def decode(rows, eos):
        tokenizer = Tokenizer(eos)
        networks = Network(rows), Network(P)
        found = code.speculative_decode_sample(*networks, tokenizer, "", N, K, 1.0, 1.0)
        return found["output_text"]

    name = f"speculative_decode_sample, k = {K}"
    yield Setting(name, partial(decode, Q, None), plain())
    yield Setting(f"{name}, eos = {EOS}", partial(decode, Q, EOS), without(EOS))
    name = f"{name}, the target knows one token more"
    more = wider(Q)
    yield Setting(name, partial(decode, more, None), plain(more))


class Tokenizer:
    """Text is the list of its tokens."""

    def __init__(self, eos):
        self.eos_token_id = eos

    def __call__(self, prompt, **_):
        return {"input_ids": torch.tensor([PROMPT])}

    def decode(self, tokens, **_):
        return tokens


def without(eos):
    """Plain sampling up to an eos, which is left out."""
    decode = plain(eos=eos)
    return lambda: [token for token in decode() if token != eos]


def spec_decode(path):
    code = imported(path, "src.speculative.decoding")
    sys.modules["src.speculative.kv_cache"].DynamicCache = Cache

    class Backend(Network):
        def get_vocab_size(self):
            return len(P)

        def forward(self, ids, past_key_values=None):
            found = self(ids, past_key_values)
            return found.logits, found.past_key_values

    def decode():
        ids = torch.tensor([PROMPT])
        found, _ = code.speculative_decode(Backend(Q), Backend(P), ids, N, 1)
        return found[0, len(PROMPT) :]

    def verify(drafted, p, q):
        rows = q[:-1].log()[None], p.log()[None]
        found = code.rejection_sample(*rows, drafted[None])[0][0]
        return found[found >= 0]

    yield Setting("speculative_decode, speculation_length = 1", decode, plain())
    yield by_rule(f"rejection_sample without bonus_logits, K = {K}", verify)


def naive_speculate(path):
    """Its check. The package itself needs Python 3.14."""
    file = path / "src/naive_speculate/speculate/utils.py"
    check = definitions(file, torch=torch).speculative_sampling

    def verify(drafted, p, q):
        n, token = check(q, p, drafted)
        return [*drafted[: int(n)], token]

    yield by_rule("speculative_sampling, sample_strategy = random", verify)
    by_argmax = GALLERY["greedy-draft"].propose
    yield by_rule("speculative_sampling, sample_strategy = greedy", verify, propose=by_argmax)


CLONES = {
    "feifeibear/LLMSpeculativeSampling": ("59a209d", feifeibear),
    "romsto/Speculative-Decoding": ("db7db67", romsto),
    "jaymody/speculative-sampling": ("03b4759", jaymody),
    "duoan/TorchCode": ("8a49ba1", torchcode),
    "AlphaGPU/leetgpu-challenges": ("5a5c5d8", leetgpu),
    "rohitg00/ai-engineering-from-scratch": ("6b10711", from_scratch),
    "Mathews-Tom/no-magic": ("ac1c477", no_magic),
    "levvius/adaptive-speculative-decoding": ("ddf1653", levvius),
    "paladin8/infer": ("40af7e9", infer),
    "taiyoo/speculative-decoding": ("a07c811", taiyoo),
    "Aayush1104/SpecDecode": ("19c979a", spec_decode),
    "VioletsOleander/naive-speculate": ("36f7dcd", naive_speculate),
}
