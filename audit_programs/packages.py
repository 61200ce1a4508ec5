"""Five packages, as they are: how far their texts are from the target's.

    pip install torch==2.13.0 transformers csaq-quant==0.6.0
    python -m audit_programs.packages csaq

Only the models are replaced, by the pair of gallery/setting.py, and what draws numbers. The
row that follows a text depends on the sum of its tokens, and a cache is made of the tokens
that were read. So whoever loses, shifts or doubles a part of the context sees it.
"""

import contextlib
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch

from enumeration import total_variation
from enumeration.pytorch import output_distribution
from gallery.setting import SETTING, mean_length, of_rounds
from speculative import autoregressive_sampling, one_round

P, Q = (torch.tensor(rows.astype(float)).log() for rows in (SETTING.P, SETTING.Q))
PROMPTS = {(0,): 3, (0, 1): 2}  # and new tokens: a prompt that was not read shows with two
K, N = SETTING.K, SETTING.N


def rows_after(table, tokens, n):
    """Logits after each of the last n prefixes: tokens [1, m] -> [1, n, 4]"""
    return table[tokens.long().cumsum(-1)[:, -n:] % len(table)]


def drawn(function):
    def silent():
        with contextlib.redirect_stdout(None):
            return function()

    return output_distribution(silent, n_checks=200, max_runs=1_000_000)


def own(prompt, n):
    """What the target writes by itself."""
    rows = SETTING.Q.astype(float)

    def target(ids, n_rows=1):
        return rows[SETTING.index(ids)[-n_rows:]]

    text = partial(autoregressive_sampling, prompt, target, n, np.random)
    return drawn(lambda: text()[len(prompt) :].tolist())


def print_texts(name, texts):
    """texts(prompt, n) -> the new tokens"""
    for prompt, most in PROMPTS.items():
        for n in range(1, most + 1):
            found = drawn(partial(texts, prompt, n))
            far = total_variation(found, own(prompt, n))
            print(f"{name}, prompt of {len(prompt)}, {n} new tokens: {far:.6f}", flush=True)


def print_rounds(name, round_after):
    """round_after(ids) -> what a round adds to a text, whatever came before"""
    kept = {}

    def distribution(ids):
        if ids not in kept:
            kept[ids] = drawn(partial(round_after, ids))
        return kept[ids]

    prompt = SETTING.prompt
    texts = of_rounds(distribution, prompt, N)
    found = {ids[len(prompt) :]: float(share) for ids, share in texts.items()}
    tokens = float(mean_length(distribution(prompt)))
    print(f"{name}: {total_variation(found, own(prompt, N)):.2e}, {tokens:.4f} tokens per round")


# ---- csaq-quant: the target is the model in its verify mode ----


def csaq():
    from csaq import CSAQInferenceEngine, CSAQLinear

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = CSAQLinear(4, 4, 8)
            for name in "_csaq_fp16_backup", "_csaq_quant_stash", "_csaq_hi_rows":
                setattr(self.layer, name, torch.zeros(1))
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, input_ids, past_key_values=None, use_cache=True):
            tokens = input_ids
            if past_key_values is not None:
                tokens = torch.cat([past_key_values[0][0][0, :, :, 0], input_ids], dim=1)
            cache = tokens[:, None, :, None]  # [1, 1, n, 1]
            table = Q if self.layer._verify_mode else P
            logits = rows_after(table, tokens, input_ids.shape[1])
            return SimpleNamespace(logits=logits, past_key_values=((cache, cache),))

    engine = CSAQInferenceEngine(Net(), {"layer.weight": [0]}, verbose=False)

    def texts(prompt, n):
        ids = torch.tensor([prompt])
        given = dict(speculative=True, lookahead=K, max_new_tokens=n)
        found, report = engine.generate(ids, **given)
        assert not report.error_log
        return found[0, len(prompt) :]

    print_texts("CSAQInferenceEngine.generate, lookahead = 2", texts)


# ---- specstream: the target is the model itself ----


class Grown:
    """A cache that is changed in place, like the one of transformers."""

    def __init__(self):
        self.tokens = None

    def read(self, ids):
        self.tokens = ids if self.tokens is None else torch.cat([self.tokens, ids], dim=1)
        return self.tokens, self


class Copied:
    """A cache that is left as it was, like tuples of tensors."""

    def __init__(self, tokens=None):
        self.tokens = tokens

    def read(self, ids):
        tokens = ids if self.tokens is None else torch.cat([self.tokens, ids], dim=1)
        return tokens, Copied(tokens)


def specstream():
    from specstream.speculative_streaming import SpeculativeStreaming, SpeculativeStreamingConfig

    def texts(Cache, prompt, n):
        passes = []

        class Net(torch.nn.Module):
            config = SimpleNamespace(hidden_size=4)
            model = SimpleNamespace(layers=[])

            def forward(self, input_ids, past_key_values, use_cache, return_dict):
                passes.append(input_ids)
                tokens, cache = (past_key_values or Cache()).read(input_ids)
                logits = rows_after(Q, tokens, input_ids.shape[1])
                return SimpleNamespace(logits=logits, past_key_values=cache)

        config = SpeculativeStreamingConfig(use_tree_pruning=False, max_speculation_depth=K)
        engine = SpeculativeStreaming(Net(), config, torch.device("cpu"))
        tokenizer = SimpleNamespace(eos_token_id=None)
        found = engine.generate_speculative(torch.tensor([prompt]), tokenizer, max_new_tokens=n)
        statistics = found["statistics"]
        assert statistics["total_forward_passes"] == statistics["total_tokens_generated"] == n
        assert len(passes) > n
        return found["generated_tokens"]

    for Cache in Grown, Copied:
        print_texts(f"generate_speculative, {Cache.__name__} cache", partial(texts, Cache))


# ---- Checks of a round ----


def mtplx():
    from mtplx.sampling import sample_from_distribution, verify_one_token

    def verify(drafted, p, q, rng):
        for i, token in enumerate(drafted.tolist()):
            decision = verify_one_token(q[i], p[i], token, np.random)
            if not decision.accepted:
                return np.append(drafted[:i], decision.token_id)
        return np.append(drafted, sample_from_distribution(q[-1], np.random))

    by_rule("verify_one_token", verify)

    class Zero:
        def random(self):
            return 0.0

    impossible = verify_one_token(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 0, Zero())
    print("verify_one_token, u = 0, q = 0:", impossible)


def by_rule(name, verify):
    draft, target = (
        lambda ids, n_rows=1, rows=rows: rows.astype(float)[SETTING.index(ids)[-n_rows:]]
        for rows in (SETTING.P, SETTING.Q)
    )

    def round_after(ids):
        r = one_round(np.array(ids), draft, target, K, np.random, verify=verify)
        return r.emitted.tolist()

    print_rounds(name, round_after)


def specdec():
    from specdec.decoder import SpecDecoder

    def net(table):
        return lambda ids, use_cache=True: SimpleNamespace(
            logits=rows_after(table, ids, ids.shape[1])
        )

    decoder = object.__new__(SpecDecoder)  # __init__ would download two models
    decoder.small_model, decoder.big_model, decoder.device = net(P), net(Q), "cpu"

    def round_after(ids):
        ids = torch.tensor([ids])
        return decoder.verify(ids, *decoder.generate_small(ids, K))

    print_rounds("generate_small and verify", round_after)


def mini_infer():
    from mini_infer.speculative.verifier import speculative_step

    def net(table):
        return lambda ids: (rows_after(table, ids, ids.shape[1]), None)

    def round_after(ids):
        return speculative_step(net(Q), net(P), torch.tensor([ids]), k_draft=K, temperature=1.0)[0]

    print_rounds("speculative_step", round_after)


if __name__ == "__main__":
    {f.__name__: f for f in (csaq, specstream, mtplx, specdec, mini_infer)}[sys.argv[1]]()
