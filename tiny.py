"""Speculative sampling on one page: the algorithm, a check that it is exact, and a GPT-2 to run it on.

    python tiny.py "Once upon a time" --K 4  # decode without a draft and with one, and compare
    python tiny.py --check                   # the exact distance between the two, on a toy

A small draft model guesses K tokens, and the large target model grades all of them in one
forward pass. The text still has the target's distribution. p is the draft's distribution,
q the target's, as in Chen et al. 2023 (arXiv 2302.01318).
"""

import argparse
import json
import math
import sys
import timeit
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import regex


# ---- The algorithm. model(x, n) gives the distributions of the next token after each of the last n prefixes of x ----
def autoregressive_sampling(x, target, N, rng):
    for _ in range(N):
        q = target(x)[-1]  # [n] -> [n_vocab]
        x = np.append(x, rng.choice(len(q), p=q))
    return x


def speculative_sampling(x, draft, target, N, K, rng):
    end = len(x) + N
    while len(x) < end:
        n, p = len(x), []
        for _ in range(min(K, end - n - 1)):  # guess K tokens, one after the other
            p.append(draft(x)[-1])
            x = np.append(x, rng.choice(len(p[-1]), p=p[-1]))
        q = target(x, len(p) + 1)  # one pass grades them all: [n + K] -> [K + 1, n_vocab]
        for i, token in enumerate(x[n:]):
            if not rng.random() < q[i][token] / p[i][token]:  # rejected: replace it, and drop what follows
                residual = np.maximum(q[i] - p[i], 0)
                x = np.append(x[: n + i], rng.choice(len(residual), p=residual / residual.sum()))
                break
        else:
            x = np.append(x, rng.choice(len(q[-1]), p=q[-1]))  # all accepted: a bonus
    return x


# ---- The check. A toy has three tokens, so we can run every path, and add up those that end in the same text ----
class Branches:
    """A random generator that makes these choices, then takes the first branch of each fork, and notes the others."""

    def __init__(self, choices):
        self.choices, self.made, self.others, self.mass = choices, [], [], 1

    def fork(self, branches):  # [(probability, outcome), ...]
        branches = [branch for branch in branches if branch[0] > 0]
        if not self.choices:
            self.others += [[*self.made, i] for i in range(1, len(branches))]
        i = self.choices.pop(0) if self.choices else 0
        self.made.append(i)
        self.mass *= branches[i][0]
        return branches[i][1]

    def choice(self, n, p):
        return self.fork(zip(p, range(n)))

    def random(self):
        return self  # a number without a value, which may be compared once

    def __lt__(self, a):
        return self.fork([(min(a, 1), True), (1 - min(a, 1), False)])


def law(function):  # -> {text: probability} of function(rng), and the number of paths
    found, paths, n_paths = {}, [[]], 0
    while paths:
        rng = Branches(paths.pop())
        text = tuple(function(rng).tolist())
        found[text] = found.get(text, 0) + rng.mass
        paths, n_paths = paths + rng.others, n_paths + 1
    return found, n_paths


def check(N=4, K=2):
    P = Fraction(1, 10) * np.array([[2, 5, 3], [1, 2, 7], [2, 3, 5]])  # P[t] is the draft's row after token t
    Q = Fraction(1, 10) * np.array([[3, 2, 5], [5, 4, 1], [3, 5, 2]])
    draft, target, x = lambda x, n=1: P[x[-n:]], lambda x, n=1: Q[x[-n:]], np.array([0])
    fast, n_paths = law(lambda rng: speculative_sampling(x, draft, target, N, K, rng))
    slow, _ = law(lambda rng: autoregressive_sampling(x, target, N, rng))
    distance = sum(abs(fast.get(text, 0) - slow.get(text, 0)) for text in {*fast, *slow}) / 2
    print(f"{n_paths:,} paths, {len(fast)} texts of total probability {sum(fast.values())}, distance {distance}")


# ---- GPT-2 (Radford et al. 2019), after picoGPT. m positions are new, and the others in the cache ----
def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


class GPT2:
    """It keeps the keys and values of the last x. After a rejection, just call it with another x."""

    def __init__(self, folder, temperature):
        """Read OpenAI's checkpoint. No index is needed, for TensorFlow writes tensors in the order of their names."""
        vars(self).update(json.loads(Path(folder, "hparams.json").read_text()))  # n_vocab, n_ctx, n_embd, n_head, ...
        n, file = self.n_embd, Path(folder, "model.ckpt.data-00000-of-00001")
        shapes = {"wte": (self.n_vocab, n), "wpe": (self.n_ctx, n), "ln_f/g": (n,), "ln_f/b": (n,)}
        for i in range(self.n_layer):
            shapes |= {f"h{i}/{name}": (n,) for name in ("ln_1/g", "ln_1/b", "ln_2/g", "ln_2/b")}
            for name, a, b in ("attn/c_attn", 1, 3), ("attn/c_proj", 1, 1), ("mlp/c_fc", 1, 4), ("mlp/c_proj", 4, 1):
                shapes |= {f"h{i}/{name}/w": (a * n, b * n), f"h{i}/{name}/b": (b * n,)}
        names = sorted(shapes)
        sizes = [math.prod(shapes[name]) for name in names]
        numbers = np.fromfile(file, f"<f{file.stat().st_size // sum(sizes)}").astype(np.float32)  # from float16 or 32
        self.w = {name: w.reshape(shapes[name]) for name, w in zip(names, np.split(numbers, np.cumsum(sizes)[:-1]))}
        self.x, self.cache, self.temperature = np.zeros(0, int), [None] * self.n_layer, temperature

    def linear(self, x, name):  # [m, n_in] -> [m, n_out]
        return x @ self.w[name + "/w"] + self.w[name + "/b"]

    def norm(self, x, name):  # [m, n_embd] -> [m, n_embd]
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * self.w[name + "/g"] + self.w[name + "/b"]

    def attention(self, x, i, past):  # [m, n_embd] -> [m, n_embd]
        qkv = self.linear(x, f"h{i}/attn/c_attn").reshape(len(x), 3, self.n_head, -1)  # [m, 3, n_head, d]
        q, *kv = qkv.transpose(1, 2, 0, 3)  # three times [n_head, m, d]
        if past:  # what belongs to rejected guesses is cut off
            kv = [np.append(old[:, :past], new, axis=1) for old, new in zip(self.cache[i], kv)]
        self.cache[i] = k, v = kv  # twice [n_head, past + m, d]
        scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[2])  # [n_head, m, past + m]
        scores += np.triu(np.full(scores.shape[1:], -np.inf, np.float32), past + 1)  # nobody sees a later token
        heads = softmax(scores) @ v  # [n_head, m, d]
        return self.linear(heads.swapaxes(0, 1).reshape(x.shape), f"h{i}/attn/c_proj")

    def __call__(self, x, n=1):  # [past + m] -> [n, n_vocab]
        both = min(len(x), len(self.x))
        same = int(np.append(x[:both] == self.x[:both], False).argmin())  # so much of x was in the last call
        past, self.x = min(same, len(x) - n), x
        h = self.w["wte"][x[past:]] + self.w["wpe"][past : len(x)]  # [m, n_embd]
        for i in range(self.n_layer):
            h = h + self.attention(self.norm(h, f"h{i}/ln_1"), i, past)
            a = self.linear(self.norm(h, f"h{i}/ln_2"), f"h{i}/mlp/c_fc")  # [m, 4 * n_embd]
            a = 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))  # gelu
            h = h + self.linear(a, f"h{i}/mlp/c_proj")
        logits = self.norm(h[-n:], "ln_f") @ self.w["wte"].T  # [n, n_vocab]
        if self.temperature == 0:
            return np.float64(np.arange(self.n_vocab) == logits.argmax(-1)[:, None])  # one-hot
        return softmax(np.float64(logits) / self.temperature)


# ---- The tokenizer: cut a text into words, then merge neighbours, the pair that was learned earliest first ----
class Encoder:
    def __init__(self, folder):
        self.ids = json.loads(Path(folder, "encoder.json").read_text(encoding="utf-8"))
        merges = Path(folder, "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
        self.ranks = {tuple(pair.split()): rank for rank, pair in enumerate(merges)}
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that are written as themselves
        others = [byte for byte in range(256) if byte not in plain]
        self.chars = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}

    def encode(self, text):
        ids = []
        for word in regex.findall(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", text):
            pieces = [self.chars[byte] for byte in word.encode()]
            while known := [(self.ranks[p], i) for i, p in enumerate(pairwise(pieces)) if p in self.ranks]:
                i = min(known)[1]
                pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
            ids += [self.ids[piece] for piece in pieces]
        return ids

    def decode(self, ids):
        tokens, bytes_of = {i: token for token, i in self.ids.items()}, {c: byte for byte, c in self.chars.items()}
        return bytes(bytes_of[char] for i in ids for char in tokens[int(i)]).decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="Once upon a time there was a king who had three sons,")
    parser.add_argument("--check", action="store_true", help="run every path of a toy, and decode nothing")
    for name, default in dict(K=4, N=100, temperature=0.0, draft="models/draft", target="models/target").items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help="(default: %(default)s)")
    args = parser.parse_args()
    if args.check:
        return check() if len(sys.argv) == 2 else parser.error("--check goes with nothing else")
    for folder in args.draft, args.target:
        if not Path(folder, "hparams.json").exists():
            parser.error(f"{folder} is no folder with a checkpoint of OpenAI")
    K, N, encoder = min(args.K, args.N), args.N, Encoder(args.target)
    draft, target = (GPT2(folder, args.temperature) for folder in (args.draft, args.target))
    x, n_max = np.array(encoder.encode(args.prompt), int), min(draft.n_ctx, target.n_ctx) - N
    if not (K >= 0 and N > 0 and 0 <= args.temperature < math.inf and 0 < len(x) <= n_max):
        parser.error(f"K or the temperature is not from 0 up, N below 1, or the prompt not from 1 to {n_max} tokens")
    rounds, runs = [], ([], [])
    for turn in range(6):  # in turns, because other programs slow down now the one and now the other
        draft(x), target(x)  # they read the prompt, before the clock starts
        rng, begun = np.random.default_rng(123), timeit.default_timer()
        if turn % 2 == 0:
            ids = autoregressive_sampling(x, target, N, rng)
        else:
            ids = speculative_sampling(x, draft, lambda x, n: rounds.append(n) or target(x, n), N, K, rng)
        runs[turn % 2].append((timeit.default_timer() - begun, encoder.decode(ids)))
    (plain, text), (fast, other) = map(min, runs)
    print(f"Target alone, {N / plain:.0f} tokens per second:\n{text}\n\nWith a draft, {N / fast:.0f}:\n{other}\n")
    one, several = (min(timeit.repeat(lambda n=n: target(ids, n), number=1, repeat=9)) for n in (1, K + 1))
    print(f"{3 * N / len(rounds):.2f} tokens per round, and {plain / fast:.2f} times as fast as the target alone.")
    if K:
        print(f"{K + 1} positions take {several / one:.1f} times as long as one, for BLAS copies all weights before it")
        print("multiplies several rows by them. The folder fast/ does without: run main.py.")


if __name__ == "__main__":
    main()
