"""Speculative sampling on one page: the algorithm, a check that it is exact, and a GPT-2 for it.

    python tiny.py "Once upon a time" --K 4  # decode without a draft and with one, and compare
    python tiny.py --check                   # the exact distance between the two, on a toy

A small draft model guesses K tokens, and the large target model grades all of them in one
forward pass. The text still has the target's distribution. p is the draft's distribution,
q the target's, as in Chen et al. 2023 (arXiv 2302.01318).
"""

import json
import math
import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np
import regex


# ---- The algorithm ----
# model(x, n) gives n rows, the last one for the token after all of x, the one before it for the
# last token of x, and so on.
def autoregressive_sampling(x, target, N, rng):
    for _ in range(N):
        q = target(x)[-1]  # [n] -> [n_vocab]
        x = np.append(x, rng.choice(len(q), p=q))
    return x


def speculative_sampling(x, draft, target, N, K, rng):
    end = len(x) + N
    while len(x) < end:
        n, p = len(x), []
        for _ in range(min(K, end - n - 1)):  # guess K tokens; -1, as the round adds one itself
            p.append(draft(x)[-1])
            x = np.append(x, rng.choice(len(p[-1]), p=p[-1]))
        q = target(x, len(p) + 1)  # one pass grades them all: [n + K] -> [K + 1, n_vocab]
        for i, token in enumerate(x[n:]):
            if rng.random() >= q[i][token] / p[i][token]:  # rejected: replace it, drop the rest
                residual = np.maximum(q[i] - p[i], 0)
                x = np.append(x[: n + i], rng.choice(len(residual), p=residual / residual.sum()))
                break
        else:
            x = np.append(x, rng.choice(len(q[-1]), p=q[-1]))  # all accepted: a bonus
    return x


# ---- The check ----
# A toy has three tokens, so we can run every path, and add up those that end in the same text.
ENDLESS = "the loop has no end; does each round add a token?"


def stop_if(is_wrong, why):
    if is_wrong:
        sys.exit(f"tiny.py: error: {why}")


class Branches:
    """A fake random generator, which takes one path through the code.

    Each random draw is a fork. `choices` says which branches to take at the first forks. After
    them it takes the first branch of each fork, and notes the other branches in `others`: each
    note is the `choices` of a path that is still to be taken.
    """

    def __init__(self, choices):
        self.choices = choices
        self.made = []
        self.others = []
        self.mass = 1  # the probability of the path so far
        self.is_new = False  # whether a random number waits to be compared

    def fork(self, branches):  # [(probability, outcome), ...] -> an outcome
        branches = [branch for branch in branches if branch[0] > 0]
        i = 0
        if self.choices:
            i = self.choices.pop(0)
        else:
            for other in range(1, len(branches)):
                self.others.append([*self.made, other])
        self.made.append(i)
        stop_if(len(self.made) > 99, ENDLESS)
        probability, outcome = branches[i]
        self.mass *= probability
        return outcome

    def choice(self, n, p):
        return self.fork(zip(p, range(n)))

    def random(self):
        self.is_new = True
        return self  # a number without a value, which may be compared once

    def __lt__(self, a):  # rng.random() < a is True with probability a
        stop_if(not self.is_new, "--check allows one comparison of each random number")
        self.is_new = False
        a = min(max(a, 0), 1)
        return self.fork([(a, True), (1 - a, False)])

    def __ge__(self, a):
        return not self < a

    __le__ = __lt__  # the same, for a random number never equals a
    __gt__ = __ge__


def distribution(function):  # -> {text: probability} of function(rng), and the number of paths
    found = {}
    n_paths = 0
    paths = [[]]
    while paths:
        rng = Branches(paths.pop())
        text = tuple(function(rng).tolist())
        found[text] = found.get(text, 0) + rng.mass
        n_paths += 1
        paths += rng.others
    return found, n_paths


def counted(model, calls, most=99):  # a model that notes its calls, and stops if there's no end
    def call(x, n=1):
        calls.append(n)
        stop_if(len(calls) > most, ENDLESS)
        return model(x, n)

    return call


def table(rows):  # a model, where rows[t] is the distribution after token t
    return lambda x, n=1: rows[x[-n:]]


def check(N=4, K=2):
    tenth = Fraction(1, 10)
    draft = table(tenth * np.array([[2, 5, 3], [1, 2, 7], [2, 3, 5]]))
    target = table(tenth * np.array([[3, 2, 5], [5, 4, 1], [3, 5, 2]]))
    x = np.array([0])

    def plain(rng):
        return autoregressive_sampling(x, target, N, rng)

    def speculative(rng):
        return speculative_sampling(x, draft, counted(target, []), N, K, rng)

    slow, _ = distribution(plain)
    fast, n_paths = distribution(speculative)
    differences = [fast.get(text, 0) - slow.get(text, 0) for text in {*fast, *slow}]
    distance = sum(map(abs, differences)) / 2
    total = sum(fast.values())
    print(f"{n_paths:,} paths, {len(fast)} texts of total probability {total}")
    print(f"distance {distance}, or {float(distance):.4f}")


# ---- GPT-2 (Radford et al. 2019), after picoGPT. m positions are new, the others in the cache ----
def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def common_prefix(a, b):
    """How many ids two texts share at their beginning."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    return int(differs.argmax()) if differs.any() else n


def shapes_of(n_vocab, n_ctx, n_embd, n_head, n_layer):
    n = n_embd
    layer = {"ln_1": (n,), "attn/c_attn": (n, 3 * n), "attn/c_proj": (n, n)}
    layer |= {"ln_2": (n,), "mlp/c_fc": (n, 4 * n), "mlp/c_proj": (4 * n, n)}
    weights = {"ln_f": (n,)}
    for i in range(n_layer):
        for name in layer:
            weights[f"h{i}/{name}"] = layer[name]
    shapes = {"wte": (n_vocab, n), "wpe": (n_ctx, n)}
    for name in weights:
        shapes[name + "/w"] = weights[name]
        shapes[name + "/b"] = weights[name][-1:]
    return shapes


def read_tensors(file, shapes):
    """OpenAI's checkpoint. TensorFlow sorted the tensors by name, so no index is needed."""
    kinds = {2: np.float16, 4: np.float32}
    n_numbers = sum(map(math.prod, shapes.values()))
    n_bytes = file.stat().st_size / n_numbers  # per number, for it holds nothing else
    stop_if(n_bytes not in kinds, f"{file} has another size than hparams.json says")
    numbers = np.fromfile(file, kinds[n_bytes]).astype(np.float32)
    tensors = {}
    for name in sorted(shapes):
        size = math.prod(shapes[name])
        tensors[name] = numbers[:size].reshape(shapes[name])
        numbers = numbers[size:]
    return tensors


class GPT2:
    """It keeps the keys and values of the last x. After a rejection, just call it with another."""

    def __init__(self, folder, temperature):
        hparams = json.loads(Path(folder, "hparams.json").read_text())
        file = Path(folder, "model.ckpt.data-00000-of-00001")
        self.w = read_tensors(file, shapes_of(**hparams))
        self.n_ctx = hparams["n_ctx"]
        self.n_head = hparams["n_head"]
        self.kv_cache = [None] * hparams["n_layer"]
        self.x = np.zeros(0, int)
        self.temperature = max(temperature, 1e-9)  # a division by 0 has no result

    def linear(self, x, name):  # [m, n_in] -> [m, n_out]
        return x @ self.w[name + "/w"] + self.w[name + "/b"]

    def norm(self, x, name):  # [m, n_embd] -> [m, n_embd]
        x = x - x.mean(-1, keepdims=True)
        variance = (x * x).mean(-1, keepdims=True)
        x = x / np.sqrt(variance + 1e-5)
        return x * self.w[name + "/w"] + self.w[name + "/b"]

    def attention(self, x, i, past):  # [m, n_embd] -> [m, n_embd]
        qkv = self.linear(x, f"h{i}/attn/c_attn")  # [m, 3 * n_embd]
        qkv = qkv.reshape(len(x), 3, self.n_head, -1)  # [m, 3, n_head, d]
        q, k, v = qkv.transpose(1, 2, 0, 3)  # three times [n_head, m, d]
        if past:  # what belongs to rejected guesses is cut off
            old_k, old_v = self.kv_cache[i]
            k = np.append(old_k[:, :past], k, axis=1)  # [n_head, past + m, d]
            v = np.append(old_v[:, :past], v, axis=1)
        self.kv_cache[i] = k, v
        scores = q @ k.swapaxes(1, 2)  # [n_head, m, past + m]
        scores /= math.sqrt(q.shape[2])
        seen = np.tri(*scores.shape[1:], past, bool)  # nobody sees a later token
        scores[:, ~seen] = -np.inf
        heads = softmax(scores) @ v  # [n_head, m, d]
        heads = heads.swapaxes(0, 1).reshape(x.shape)  # [m, n_embd]
        return self.linear(heads, f"h{i}/attn/c_proj")

    def __call__(self, x, n=1):  # [past + m] -> [n, n_vocab]
        past = min(common_prefix(x, self.x), len(x) - n)
        self.x = x
        wte, wpe = self.w["wte"], self.w["wpe"]
        h = wte[x[past:]] + wpe[past : len(x)]  # [m, n_embd]
        for i in range(len(self.kv_cache)):
            a = self.norm(h, f"h{i}/ln_1")
            h = h + self.attention(a, i, past)
            a = self.norm(h, f"h{i}/ln_2")
            a = gelu(self.linear(a, f"h{i}/mlp/c_fc"))  # [m, 4 * n_embd]
            h = h + self.linear(a, f"h{i}/mlp/c_proj")
        h = self.norm(h[-n:], "ln_f")
        logits = np.float64(h @ wte.T)  # [n, n_vocab]
        return softmax(logits / self.temperature)


# ---- The tokenizer ----
# It cuts a text into words, then merges neighbours, the pair that was learned earliest first.
WORD = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class Encoder:
    def __init__(self, folder):
        self.ids = json.loads(Path(folder, "encoder.json").read_text(encoding="utf-8"))
        lines = Path(folder, "vocab.bpe").read_text(encoding="utf-8").split("\n")
        merges = [tuple(line.split()) for line in lines[1:-1]]
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in plain]
        self.chars = {byte: chr(byte) for byte in plain}  # bytes that are written as themselves
        for i, byte in enumerate(others):
            self.chars[byte] = chr(256 + i)

    def encode(self, text):
        ids = []
        for word in regex.findall(WORD, text):
            pieces = [self.chars[byte] for byte in word.encode()]
            while known := [pair for pair in pairwise(pieces) if pair in self.ranks]:
                first = min(known, key=self.ranks.get)
                i = [*pairwise(pieces)].index(first)
                pieces[i : i + 2] = ["".join(first)]
            ids += [self.ids[piece] for piece in pieces]
        return ids

    def decode(self, ids):
        tokens = {i: token for token, i in self.ids.items()}
        bytes_of = {char: byte for byte, char in self.chars.items()}
        chars = "".join(tokens[i] for i in ids)
        return bytes(bytes_of[char] for char in chars).decode(errors="replace")


# ---- The program ----
def arguments():
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    prompt = "Once upon a time there was a king who had three sons,"
    default = "(default: %(default)s)"
    add = parser.add_argument
    add("prompt", nargs="?", default=prompt)
    add("--check", action="store_true", help="run every path of a toy, and decode nothing")
    add("--K", type=int, default=4, help=default)
    add("--N", type=int, default=100, help=default)
    add("--temperature", type=float, default=0.0, help=default)
    add("--draft", default="models/draft", help=default)
    add("--target", default="models/target", help=default)
    args = parser.parse_args()
    stop_if(args.check and len(sys.argv) > 2, "--check goes with nothing else")
    stop_if(args.K < 0, "--K must be 0 or more")
    stop_if(args.N < 1, "--N must be 1 or more")
    stop_if(not 0 <= args.temperature < math.inf, "--temperature must be finite, and 0 or more")
    return args


def fastest(function, n=3):  # of n calls -> seconds, and what it returned
    seconds = math.inf
    for _ in range(n):
        begun = perf_counter()
        result = function()
        seconds = min(seconds, perf_counter() - begun)
    return seconds, result


def print_cost(target, x, n):
    one, _ = fastest(lambda: target(x, 1), 9)
    several, _ = fastest(lambda: target(x, n), 9)
    print(f"{n} positions take {several / one:.1f} times as long as one.")
    if 1.5 * one < several < n * one:  # copying cannot explain more than n passes
        print("BLAS first copies all weights. The folder fast/ does without: run main.py.")


def main():
    args = arguments()
    if args.check:
        return check()
    N = args.N
    K = min(args.K, N)
    draft = GPT2(args.draft, args.temperature)
    target = GPT2(args.target, args.temperature)
    encoder = Encoder(args.target)
    other = Encoder(args.draft)
    stop_if(encoder.ids != other.ids, "draft and target have different vocabularies")
    x = np.array(encoder.encode(args.prompt), int)
    n_ctx = min(draft.n_ctx, target.n_ctx)
    stop_if(not len(x), "the prompt is empty")
    stop_if(len(x) + N > n_ctx, f"{len(x)} + {N} tokens are too many: these models hold {n_ctx}")

    rounds = []

    def plain():
        return autoregressive_sampling(x, target, N, np.random.default_rng(123))

    def speculative():
        rounds.clear()
        watched = counted(target, rounds, N * (K + 1))
        return speculative_sampling(x, draft, watched, N, K, np.random.default_rng(123))

    slow, ids = fastest(plain)
    fast, ids_fast = fastest(speculative)
    print(f"Target alone, {N / slow:.0f} tokens per second:\n{encoder.decode(ids)}\n")
    print(f"With a draft, {N / fast:.0f}:\n{encoder.decode(ids_fast)}\n")
    per_round = N / len(rounds)
    print(f"{per_round:.2f} tokens per round, {slow / fast:.2f} times as fast as the target alone.")
    if K > 0:
        print_cost(target, ids, K + 1)
    if np.array_equal(ids, ids_fast):
        print("Both texts are the same.")
    elif args.temperature > 0:
        print("The texts differ, as two samples do.")
    else:
        print("The texts differ: a bug, or two tokens that only rounding tells apart.")


if __name__ == "__main__":
    try:
        main()
        print(end="", flush=True)  # so that a closed pipe shows here
    except (OSError, UnicodeError) as error:  # no such file, a closed pipe, a prompt not in UTF-8
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # at its end Python writes once more
        sys.exit(f"tiny.py: error: {error}")
