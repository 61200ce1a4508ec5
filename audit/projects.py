"""Seven repositories and a package, as they are: how far their texts are from the target's.

    pip install torch==2.13.0 transformers==5.24.0
    git clone https://github.com/wtlow003/speculative-sampling ../others/wtlow003
    git -C ../others/wtlow003 checkout 8a77e6f
    python -m audit.projects wtlow003 ../others/wtlow003

Only the models are replaced, by the pair of gallery/setting.py, and what draws numbers. The
row that follows a text depends on the sum of its tokens, and a cache is made of the tokens
that were read. So whoever loses, shifts or doubles a part of the context sees it.
"""

import contextlib
import importlib
import importlib.util
import sys
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch

from enumeration import total_variation
from enumeration.pytorch import output_distribution
from gallery.setting import SETTING, mean_length, of_rounds
from speculative import autoregressive_sampling, one_round

P, Q = (torch.tensor(rows.astype(float)).log() for rows in (SETTING.P, SETTING.Q))
K, N, PROMPT = SETTING.K, SETTING.N, SETTING.prompt
OWN_NAMES = "sampling", "speculative", "utils"  # of this project, and of some of these


def rows_after(table, tokens, n):
    """Logits after each of the last n prefixes: tokens [1, m] -> [1, n, 4]"""
    return table[tokens.long().cumsum(-1)[:, -n:] % len(table)]


def net(table):
    """A network without a cache: ids [1, n] -> logits [1, n, 4]"""
    return lambda ids: SimpleNamespace(logits=rows_after(table, ids, ids.shape[1]))


def drawn(function):
    def silent():
        with contextlib.redirect_stdout(None):
            return function()

    return output_distribution(silent, n_checks=200, max_runs=1_000_000)


def model(rows):
    rows = rows.astype(float)
    return lambda ids, n_rows=1: rows[SETTING.index(ids)[-n_rows:]]


def own(n):
    """What the target writes by itself."""
    text = partial(autoregressive_sampling, PROMPT, model(SETTING.Q), n, np.random)
    return drawn(lambda: text()[len(PROMPT) :].tolist())


def print_texts(name, text, n=N):
    """text() -> at least n new tokens"""
    found = drawn(lambda: [int(token) for token in text()][:n])
    print(f"{name}, {n} tokens: {total_variation(found, own(n)):.4g}", flush=True)


def print_rounds(name, round_after, n=N):
    """round_after(ids) -> what a round adds to a text, whatever came before"""

    @cache
    def distribution(ids):
        return drawn(lambda: [int(token) for token in round_after(ids)])

    texts = of_rounds(distribution, PROMPT, n)
    found = {ids[len(PROMPT) :]: float(share) for ids, share in texts.items()}
    tokens = float(mean_length(distribution(PROMPT)))
    far = total_variation(found, own(n))
    print(f"{name}, {n} tokens: {far:.4g}, {tokens:.4f} tokens per round", flush=True)


def imported(folder, name):
    for known in OWN_NAMES:
        sys.modules.pop(known, None)
    sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def from_file(path):
    """A module that needs nothing of its package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


# ---- Rounds: a text that is to have one token more ends with its round ----


def wtlow003(folder):
    sampling = imported(folder, "src.speculative_sampling").speculative_sampling

    for k in 1, 2:

        def round_after(ids, k=k):
            settings = dict(N=1, K=k, temperature=1.0, top_k=0, top_p=0.0)
            found = sampling(torch.tensor([ids]), net(P), net(Q), **settings)
            return [token for token, _ in found]

        print_rounds(f"speculative_sampling, K = {k}", round_after)


def shreyansh26(folder):
    sampling = imported(folder, "speculative_sampling").speculative_sampling

    def round_after(ids):
        ids = torch.tensor([ids])
        longer = ids.shape[1] + 1
        found = sampling(net(Q), net(P), ids, longer, None, lookahead=K, debug=False)
        return found[0, ids.shape[1] :]

    print_rounds("speculative_sampling, lookahead = 2", round_after)


song_william = shreyansh26  # the same file, but for the name of an argument


def dspark_mlx(folder):
    accept = from_file(folder / "dspark_mlx" / "verify.py").speculative_sample_accept

    def verify(drafted, p, q, rng):
        return accept(drafted, p, q, np.random).tokens

    def round_after(ids):
        models = model(SETTING.P), model(SETTING.Q)
        return one_round(np.array(ids), *models, K, np.random, verify=verify).emitted

    print_rounds("speculative_sample_accept, K = 2", round_after)


# ---- Whole texts ----


def pleto(folder):
    sys.modules["common"] = mock.MagicMock()  # a clock, a seed and a type, in Python 3.12
    sampling = imported(folder, "speculative_sampling").speculative_sampling
    draft, target = (partial(lambda table, ids: net(table)(ids).logits, table) for table in (P, Q))

    for gamma in 1, 2:
        for n in 1, 2, 3:

            def text(gamma=gamma, n=n):
                return sampling(torch.tensor([PROMPT]), target, draft, n, gamma)[0, len(PROMPT) :]

            print_texts(f"speculative_sampling, gamma = {gamma}", text, n)


def yahtze(folder):
    SpeculativeDecoder = imported(
        folder / "speculative-decoding", "src.decoding.speculative"
    ).SpeculativeDecoder

    def language_model(table):
        tokenizer = SimpleNamespace(eos_token_id=None, decode=lambda ids, **_: str(ids))
        return SimpleNamespace(
            tokenizer=tokenizer,
            forward=net(table),
            encode=lambda text: torch.tensor([PROMPT]),
            decode=str,
        )

    for top_k in 4, 3, 2:
        models = language_model(P), language_model(Q)
        decoder = SpeculativeDecoder(*models, k=1, temperature=1.0, top_k=top_k)
        text = partial(decoder.generate, "", 2)
        print_texts(
            f"generate, k = 1, top_k = {top_k}", lambda text=text: text()[0][len(PROMPT) :], 2
        )


class Network(torch.nn.Module):
    """With keys and values, which are the tokens that it has read."""

    config = SimpleNamespace(vocab_size=4, max_position_embeddings=99)

    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, input_ids, past_key_values, use_cache):
        tokens = input_ids
        if past_key_values:
            tokens = torch.cat([past_key_values[0][0][0, :, :, 0], input_ids], dim=1)
        kept = tokens[:, None, :, None]  # [1, 1, n, 1]
        logits = rows_after(self.table, tokens, input_ids.shape[1])
        return SimpleNamespace(logits=logits, past_key_values=((kept, kept),))


def sdivyanshu90(folder):
    theirs = imported(folder, "speculative_decoding")

    def decoder(k, n):
        device = torch.device("cpu")
        draft = theirs.DraftModel(Network(P), device, torch.float64)
        target = theirs.TargetModel(Network(Q), device, torch.float64)
        config = theirs.SpeculativeDecodingConfig(speculation_length=k, max_new_tokens=n)
        return theirs.SpeculativeDecoder(draft, target, config)

    for k, n in (1, 2), (2, 2):
        text = partial(decoder(k, n).generate, torch.tensor([PROMPT]))
        name = f"generate, speculation_length = {k}"
        print_texts(name, lambda text=text: text()[0][0, len(PROMPT) :], n)


# ---- A tree ----


def xlthu(folder):
    theirs = from_file(folder / "decoding" / "dtree.py")

    def grown(ids, counts):
        """The most probable tokens as children, counts[i] at depth i, with their logarithms."""
        tree = theirs.DraftTree(ids[-1])
        layer = [(tree.root, ids)]
        for count in counts:
            below = []
            for node, text in layer:
                row = rows_after(P, torch.tensor([text]), 1)[0, 0]
                for token in row.topk(count).indices.tolist():
                    child = theirs.Node(token, node.score + row[token].item())
                    node.add_child(child)
                    below.append((child, (*text, token)))
            layer = below
        return tree.done()

    def rows_of(tree, ids):
        """Logits of the target at the root, and at each node in the tree's own order."""
        texts = {-1: ids}

        def visit(node, parent):
            if parent is not None:
                texts[node.idx] = (*texts[parent.idx], node.token)
            return True

        tree.dfs(visit)
        rows = [rows_after(Q, torch.tensor([texts[i]]), 1)[0] for i in sorted(texts)]
        return torch.cat(rows)[None]  # [1, 1 + size, 4]

    for counts in (2,), (1,), (1, 1), (2, 1):

        def round_after(ids, counts=counts):
            tree = grown(ids, counts)
            return [found.token for found in tree.longest_acc_chain_mrss(rows_of(tree, ids))]

        for n in 2, 3:
            print_rounds(f"longest_acc_chain_mrss, top children {counts}", round_after, n)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]).resolve())
